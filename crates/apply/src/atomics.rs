//! What of a configuration is taken as a whole, and so says more than it seems to.

use crate::{
    identity::identity,
    schema::{ListType, Shape, TypeRef},
};
use serde_json::Value;

/// The paths at which a configuration holds lists, maps and structs that are not merged: `.spec.selector`.
#[must_use]
pub fn atomics(of: TypeRef<'_>, config: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(of, config, "", &mut found);
    found
}

fn walk(of: TypeRef<'_>, value: &Value, path: &str, found: &mut Vec<String>) {
    match (of.shape(Some(value)), value) {
        (Shape::Map(map), Value::Object(_)) if map.atomic => found.push(path.to_owned()),
        (Shape::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some(field) = map.of(name) {
                    walk(of.at(field), value, &format!("{path}.{name}"), found);
                }
            }
        }
        (Shape::List(list), Value::Array(_)) if list.list_type == ListType::Atomic => found.push(path.to_owned()),
        (Shape::List(list), Value::Array(items)) => {
            for item in items {
                let item_path = identity(of, list, item).map(|i| format!("{path}{i}"));
                walk(of.at(list.element), item, item_path.as_deref().unwrap_or(path), found);
            }
        }
        _ => {}
    }
}
