//! Removal of fields from a value.

use crate::{
    list_item_key::list_item_key,
    path_element::PathElement,
    schema::{ListType, Shape, TypeRef},
    set::Set,
};
use serde_json::Value;

/// Returns a value without the given fields and items (`TypedValue.RemoveItems`); `None` if nothing is left.
#[must_use]
pub fn remove(type_ref: TypeRef<'_>, value: &Value, fields: &Set) -> Option<Value> {
    match (type_ref.shape(Some(value)), value) {
        (Shape::Scalar(_), value) => Some(value.clone()),
        // Atomic values are removed as a whole, because nested fields have no owner.
        (Shape::List(list), Value::Array(items)) if list.list_type != ListType::Atomic => {
            let retained: Vec<Value> = items
                .iter()
                .filter_map(|item| {
                    let Ok(list_item_key) = list_item_key(type_ref, list, item) else { return Some(item.clone()) };
                    match fields.get(&PathElement::from(&list_item_key)) {
                        None => Some(item.clone()),
                        Some(node) if node.member => None,
                        Some(node) => {
                            Some(remove(type_ref.with_id(list.element), item, &node.nested).unwrap_or_default())
                        }
                    }
                })
                .collect();
            (!retained.is_empty()).then_some(Value::Array(retained))
        }
        (Shape::Map(map), Value::Object(all)) if !map.atomic => {
            let mut retained = serde_json::Map::new();
            for (key, value) in all {
                let remaining = match (fields.get_field(key), map.field_type(key)) {
                    (None, _) | (_, None) => value.clone(),
                    (Some(node), _) if node.member => continue,
                    (Some(node), Some(field)) => {
                        remove(type_ref.with_id(field), value, &node.nested).unwrap_or_default()
                    }
                };
                retained.insert(key.clone(), remaining);
            }
            (!retained.is_empty()).then_some(Value::Object(retained))
        }
        _ => None,
    }
}
