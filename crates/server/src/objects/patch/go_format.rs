//! Formatting of a patch as Go prints a map (`%+v`).

use serde_json::{Map, Value};

/// `map[metadata:map[labels:map[a:b]]]`
pub(super) fn go_format(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_format).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => map(fields),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn map(fields: &Map<String, Value>) -> String {
    let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    let entries: Vec<String> = sorted.into_iter().map(|(name, value)| format!("{name}:{}", go_format(value))).collect();
    format!("map[{}]", entries.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_formatted_as_in_go() {
        let patch = json!({"b": [1, "x y", null], "a": {"z": true, "y": {}}, "c": "", "d": []});
        assert_eq!(go_format(&patch), "map[a:map[y:map[] z:true] b:[1 x y <nil>] c: d:[]]");
    }
}
