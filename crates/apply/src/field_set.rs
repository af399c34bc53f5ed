//! Which fields a value has.

use crate::{
    element::Element,
    identity::{Identity, identity},
    schema::{Field, List, ListType, Map, Shape, TypeRef},
    set::Set,
    value,
};
use serde_json::Value;
use std::sync::Arc;

/// Every leaf of a value, every item of its lists, and every key of its maps. The value is of this type.
#[must_use]
pub fn field_set(of: TypeRef<'_>, value: &Value) -> Set {
    any(of, value).1
}

/// Whether the field itself is in the set, and what is below it.
fn any(of: TypeRef<'_>, value: &Value) -> (bool, Set) {
    match of.shape(Some(value)) {
        Shape::Scalar(_) => (true, Set::default()),
        Shape::List(list) if list.list_type == ListType::Atomic => (true, Set::default()),
        Shape::List(list) => (false, items(of, list, value.as_array().map_or(&[], Vec::as_slice))),
        Shape::Map(map) if map.atomic => (true, Set::default()),
        Shape::Map(map) => (false, fields(of, map, value)),
    }
}

fn fields(of: TypeRef<'_>, map: &Map, value: &Value) -> Set {
    let mut set = Set::default();
    for (key, value) in value.as_object().into_iter().flatten() {
        let declared = map.field(key);
        let Some(field) = declared.map(|f| f.of).or(map.element) else { continue };
        let (member, below) = any(of.at(field), value);
        // Keys of maps are owned themselves, and so are fields that are there with nothing in them.
        let member = member || value.is_null() || value::is_empty_map(value) || declared.is_none();
        set.put(element(declared, key), member, below);
    }
    set
}

/// The element of a field; a declared one shares its name with the schema.
pub(crate) fn element(declared: Option<&Field>, key: &str) -> Element {
    declared.map_or_else(|| Element::field(key), |field| Element::Field(Arc::clone(&field.name)))
}

fn items(of: TypeRef<'_>, list: &List, items: &[Value]) -> Set {
    let mut found: Vec<(Identity<'_>, &Value)> =
        items.iter().filter_map(|item| Some((identity(of, list, item).ok()?, item))).collect();
    found.sort_by(|l, r| l.0.cmp(&r.0));
    let mut set = Set::default();
    for same in found.chunk_by(|l, r| l.0 == r.0) {
        // Those that stand twice are owned together, as one.
        let below = match same {
            [(_, item)] => any(of.at(list.element), item).1,
            _ => Set::default(),
        };
        if let Some((identity, _)) = same.first() {
            set.put(identity.into(), true, below);
        }
    }
    set
}
