//! Which fields a value has.

use crate::{
    element::Element,
    schema::{List, ListType, Map, Shape, TypeRef},
    set::Set,
    typed::identity,
    value,
};
use serde_json::Value;
use std::collections::BTreeMap;

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
        let Some(field) = map.of(key) else { continue };
        let (member, below) = any(of.at(field), value);
        // Keys of maps are owned themselves, and so are fields that are there with nothing in them.
        let member = member || value.is_null() || value::is_empty_map(value) || map.field(key).is_none();
        set.put(Element::field(key), member, below);
    }
    set
}

fn items(of: TypeRef<'_>, list: &List, items: &[Value]) -> Set {
    let mut found: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = identity(of, list, item) {
            found.entry(element).or_default().push(item);
        }
    }
    let mut set = Set::default();
    for (element, items) in found {
        // Those that stand twice are owned together, as one.
        let below = match items.as_slice() {
            [item] => any(of.at(list.element), item).1,
            _ => Set::default(),
        };
        set.put(element, true, below);
    }
    set
}
