//! Numbers as Go's JSON writes them: what is whole has no point.

use serde_json::{Number, Value};

/// Up to here a number of 64 bits says exactly which whole number it is.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Writes `1.0` as `1`, wherever it stands.
pub(super) fn settle(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(settle),
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Number(number) if number.is_f64() => {
            let whole =
                number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < EXACT && !(*f == 0.0 && f.is_sign_negative()));
            // As text, for there is no conversion that does not cut.
            if let Some(whole) = whole.and_then(|f| format!("{f:.0}").parse::<i64>().ok()) {
                *number = Number::from(whole);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::settle;
    use serde_json::{Value, json};

    #[test]
    fn whole_numbers_have_no_point() {
        let mut value: Value = serde_json::from_str(r#"{"a": [1.0, 1.5e1, -2.0, 0.5, -0.0, 1e30], "b": 3}"#).unwrap();
        settle(&mut value);
        assert_eq!(value.to_string(), r#"{"a":[1,15,-2,0.5,-0.0,1e+30],"b":3}"#);
        assert_eq!(json!({"b": 3})["b"], value["b"]);
    }
}
