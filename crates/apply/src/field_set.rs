//! Conversion of values to field sets.

use crate::{
    list_item_key::{ListItemKey, list_item_key},
    path_element::PathElement,
    schema::{Field, List, ListType, Map, Shape, TypeRef},
    set::Set,
    value,
};
use serde_json::Value;
use std::sync::Arc;

/// Returns all leaf fields, list items and map keys of a value of a type (`TypedValue.ToFieldSet`).
#[must_use]
pub fn field_set(type_ref: TypeRef<'_>, value: &Value) -> Set {
    value_field_set(type_ref, value).1
}

/// Returns whether the field itself is in the set, and its nested fields.
fn value_field_set(type_ref: TypeRef<'_>, value: &Value) -> (bool, Set) {
    match type_ref.shape(Some(value)) {
        Shape::Scalar(_) => (true, Set::default()),
        Shape::List(list) if list.list_type == ListType::Atomic => (true, Set::default()),
        Shape::List(list) => (false, list_field_set(type_ref, list, value.as_array().map_or(&[], Vec::as_slice))),
        Shape::Map(map) if map.atomic => (true, Set::default()),
        Shape::Map(map) => (false, map_field_set(type_ref, map, value)),
    }
}

fn map_field_set(type_ref: TypeRef<'_>, map: &Map, value: &Value) -> Set {
    let mut set = Set::default();
    for (key, value) in value.as_object().into_iter().flatten() {
        let declared = map.field(key);
        let Some(field) = declared.map(|f| f.type_id).or(map.element) else { continue };
        let (member, nested) = value_field_set(type_ref.with_id(field), value);
        // Map keys and fields with an empty value are owned themselves.
        let member = member || value.is_null() || value::is_empty_map(value) || declared.is_none();
        set.put(path_element(declared, key), member, nested);
    }
    set
}

/// Returns the path element of a field; the name of a declared field is shared with the schema.
pub(crate) fn path_element(declared: Option<&Field>, key: &str) -> PathElement {
    declared.map_or_else(|| PathElement::field(key), |field| PathElement::Field(Arc::clone(&field.name)))
}

fn list_field_set(type_ref: TypeRef<'_>, list: &List, items: &[Value]) -> Set {
    let mut found: Vec<(ListItemKey<'_>, &Value)> =
        items.iter().filter_map(|item| Some((list_item_key(type_ref, list, item).ok()?, item))).collect();
    found.sort_by(|l, r| l.0.cmp(&r.0));
    let mut set = Set::default();
    for duplicates in found.chunk_by(|l, r| l.0 == r.0) {
        // Duplicate items are owned together.
        let nested = match duplicates {
            [(_, item)] => value_field_set(type_ref.with_id(list.element), item).1,
            _ => Set::default(),
        };
        if let Some((list_item_key, _)) = duplicates.first() {
            set.put(list_item_key.into(), true, nested);
        }
    }
    set
}
