//! Taking fields out of a value.

use crate::{
    element::Element,
    identity::identity,
    schema::{ListType, Shape, TypeRef},
    set::Set,
};
use serde_json::Value;

/// The value without these fields and items. `None` when nothing is left of it.
#[must_use]
pub fn remove(of: TypeRef<'_>, value: &Value, fields: &Set) -> Option<Value> {
    match (of.shape(Some(value)), value) {
        (Shape::Scalar(_), value) => Some(value.clone()),
        // What is below an atomic one has no owner of its own: it goes as a whole.
        (Shape::List(list), Value::Array(items)) if list.list_type != ListType::Atomic => {
            let kept: Vec<Value> = items
                .iter()
                .filter_map(|item| {
                    let Ok(identity) = identity(of, list, item) else { return Some(item.clone()) };
                    match fields.get(&Element::from(&identity)) {
                        None => Some(item.clone()),
                        Some(node) if node.member => None,
                        Some(node) => Some(remove(of.at(list.element), item, &node.below).unwrap_or_default()),
                    }
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (Shape::Map(map), Value::Object(all)) if !map.atomic => {
            let mut kept = serde_json::Map::new();
            for (key, value) in all {
                let left = match (fields.get_field(key), map.of(key)) {
                    (None, _) | (_, None) => value.clone(),
                    (Some(node), _) if node.member => continue,
                    (Some(node), Some(field)) => remove(of.at(field), value, &node.below).unwrap_or_default(),
                };
                kept.insert(key.clone(), left);
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        _ => None,
    }
}
