//! Parameters of operations, with upstream's types and descriptions.

use serde_json::{Value, json};
use std::{collections::HashMap, sync::LazyLock};

const TEXT: &str = include_str!("parameters.txt");

/// Type and description of query parameters by name, for example `limit`, or `container@PodExecOptions` if they depend on the
/// operation.
static PARAMETERS: LazyLock<HashMap<&str, (&str, String)>> = LazyLock::new(|| {
    let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let (kind, text) = rest.split_once(' ')?;
        Some((name, (kind, text.replace("\\n", "\n"))))
    });
    parsed.collect()
});

/// Returns a query parameter. `owner` is the action of the operation, or the kind of the connect options.
pub(super) fn query(name: &str, owner: &str) -> Value {
    let found = PARAMETERS.get(format!("{name}@{owner}").as_str()).or_else(|| PARAMETERS.get(name));
    let (kind, text) = found.map_or(("string", ""), |(kind, text)| (*kind, text.as_str()));
    json!({"name": name, "in": "query", "description": text, "schema": {"type": kind, "uniqueItems": true}})
}

/// Returns a path parameter.
pub(super) fn path(name: &str, text: &str) -> Value {
    let schema = json!({"type": "string", "uniqueItems": true});
    json!({"name": name, "in": "path", "required": true, "description": text, "schema": schema})
}

/// Moves the parameters that all operations of a path share to the path (`collectSharedParameters`).
pub(super) fn collect_shared(mut item: Value) -> Value {
    let Some(fields) = item.as_object_mut() else { return item };
    let mut shared = fields.remove("parameters").and_then(|all| all.as_array().cloned()).unwrap_or_default();
    let parameters = |operation: &Value| operation["parameters"].as_array().cloned().unwrap_or_default();
    let mut common: Option<Vec<Value>> = None;
    for operation in fields.values() {
        let declared = parameters(operation);
        common = Some(match common {
            Some(common) => common.into_iter().filter(|parameter| declared.contains(parameter)).collect(),
            None => declared,
        });
    }
    let common = common.unwrap_or_default();
    for operation in fields.values_mut() {
        let left: Vec<Value> =
            parameters(operation).into_iter().filter(|parameter| !common.contains(parameter)).collect();
        if left.is_empty() {
            operation.as_object_mut().map(|operation| operation.remove("parameters"));
        } else {
            operation["parameters"] = Value::Array(left);
        }
    }
    shared.extend(common);
    let text = |parameter: &Value, key: &str| parameter[key].as_str().unwrap_or_default().to_owned();
    shared.sort_by_key(|parameter| (text(parameter, "name"), text(parameter, "in")));
    if !shared.is_empty() {
        fields.insert("parameters".to_owned(), Value::Array(shared));
    }
    item
}
