//! Atomic fields of an apply configuration, which replace the whole value of the live object.

use crate::{
    list_item_key::list_item_key,
    schema::{ListType, Shape, TypeRef},
};
use serde_json::Value;

/// Returns the paths of atomic lists, maps and structs in a configuration, for example `.spec.selector`.
#[must_use]
pub fn atomic_fields(type_ref: TypeRef<'_>, config: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    collect_atomic(type_ref, config, "", &mut paths);
    paths
}

fn collect_atomic(type_ref: TypeRef<'_>, value: &Value, path: &str, paths: &mut Vec<String>) {
    match (type_ref.shape(Some(value)), value) {
        (Shape::Map(map), Value::Object(_)) if map.atomic => paths.push(path.to_owned()),
        (Shape::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some(field) = map.field_type(name) {
                    collect_atomic(type_ref.with_id(field), value, &format!("{path}.{name}"), paths);
                }
            }
        }
        (Shape::List(list), Value::Array(_)) if list.list_type == ListType::Atomic => paths.push(path.to_owned()),
        (Shape::List(list), Value::Array(items)) => {
            for item in items {
                let item_path = list_item_key(type_ref, list, item).map(|i| format!("{path}{i}"));
                collect_atomic(type_ref.with_id(list.element), item, item_path.as_deref().unwrap_or(path), paths);
            }
        }
        _ => {}
    }
}
