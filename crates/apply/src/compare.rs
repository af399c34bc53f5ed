//! Comparison of two objects by their schema.

use crate::{
    field_set::path_element,
    list_item_key::{ListItemKey, list_item_key},
    path_element::PathElement,
    schema::{List, ListType, Map, Shape, TypeRef},
    set::Set,
    value,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Difference between two objects. No field is in more than one of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields that only the old object has.
    pub removed: Set,
    /// Fields that both objects have, with different values.
    pub modified: Set,
    /// Fields that only the new object has.
    pub added: Set,
}

impl Comparison {
    /// Returns whether there is no difference (`Comparison.IsSame`).
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }
}

/// Compares two objects of a type (`TypedValue.Compare`); list items without a valid key are skipped.
#[must_use]
pub fn compare(type_ref: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    compare_values(type_ref, old, new).nested
}

/// Difference of a field and of its nested fields.
#[derive(Default)]
struct FieldComparison {
    removed: bool,
    modified: bool,
    added: bool,
    nested: Comparison,
}

impl FieldComparison {
    /// Compares two values as a whole.
    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Self {
        Self {
            added: old.is_none(),
            removed: old.is_some() && new.is_none(),
            modified: matches!((old, new), (Some(old), Some(new)) if !value::equal(old, new)),
            nested: Comparison::default(),
        }
    }

    /// Adds the difference of a nested field.
    fn insert_nested(&mut self, element: PathElement, comparison: Self) {
        let nested = &mut self.nested;
        let sets = [
            (&mut nested.removed, comparison.removed, comparison.nested.removed),
            (&mut nested.modified, comparison.modified, comparison.nested.modified),
            (&mut nested.added, comparison.added, comparison.nested.added),
        ];
        // Usually only one of the sets changes.
        for (set, member, nested) in sets {
            if member || !nested.is_empty() {
                set.put(element.clone(), member, nested);
            }
        }
    }

    fn is_empty(&self) -> bool {
        !(self.removed || self.modified || self.added) && self.nested.is_same()
    }
}

fn compare_values(type_ref: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>) -> FieldComparison {
    // Most values are equal.
    if old == new {
        return FieldComparison::default();
    }
    let (left, right) = (type_ref.shape(old), type_ref.shape(new));
    if new.is_none() {
        return compare_shapes(type_ref, left, old, new);
    }
    if old.is_none() || left.is_same_kind(right) {
        return compare_shapes(type_ref, right, old, new);
    }
    // The kind of value changed: all nested fields are removed, and the field itself is modified.
    let mut comparison = compare_shapes(type_ref, left, old, None);
    let added = compare_shapes(type_ref, right, None, new);
    comparison.nested.added = added.nested.added;
    FieldComparison { modified: true, removed: false, added: false, ..comparison }
}

fn compare_shapes(
    type_ref: TypeRef<'_>,
    shape: Shape<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> FieldComparison {
    match shape {
        Shape::Scalar(_) => FieldComparison::leaf(old, new),
        Shape::List(list) => {
            let (l, r) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            let empty = |v: Option<&Vec<Value>>| v.is_none_or(Vec::is_empty);
            if list.list_type == ListType::Atomic || (empty(l) && empty(r)) {
                return FieldComparison::leaf(old, new);
            }
            let comparison = compare_lists(type_ref, list, l.map_or(&[], Vec::as_slice), r.map_or(&[], Vec::as_slice));
            FieldComparison { added: old.is_none(), removed: new.is_none(), ..comparison }
        }
        Shape::Map(map) => {
            let (l, r) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let empty = |v: Option<&serde_json::Map<String, Value>>| v.is_none_or(serde_json::Map::is_empty);
            if map.atomic || (empty(l) && empty(r)) {
                return FieldComparison::leaf(old, new);
            }
            let comparison = compare_maps(type_ref, map, l, r);
            FieldComparison { added: old.is_none(), removed: new.is_none(), ..comparison }
        }
    }
}

fn compare_maps(
    type_ref: TypeRef<'_>,
    map: &Map,
    old: Option<&serde_json::Map<String, Value>>,
    new: Option<&serde_json::Map<String, Value>>,
) -> FieldComparison {
    let mut comparison = FieldComparison::default();
    let mut visit = |key: &str, type_ref: TypeRef<'_>, l: Option<&Value>, r: Option<&Value>| {
        let nested = compare_values(type_ref, l, r);
        if !nested.is_empty() {
            comparison.insert_nested(path_element(map.field(key), key), nested);
        }
    };
    // Implied fields exist whenever the map exists.
    let implied = |key: &str, map_is: bool| map.field(key).and_then(|f| f.implied.as_ref()).filter(|_| map_is);
    for (key, l) in old.into_iter().flatten() {
        let Some(id) = map.field_type(key) else { continue };
        let r = new.and_then(|n| n.get(key)).or_else(|| implied(key, new.is_some()));
        visit(key, type_ref.with_id(id), Some(l), r);
    }
    for (key, r) in new.into_iter().flatten().filter(|(k, _)| old.is_none_or(|o| !o.contains_key(*k))) {
        let Some(id) = map.field_type(key) else { continue };
        visit(key, type_ref.with_id(id), implied(key, old.is_some()), Some(r));
    }
    if old.is_some() != new.is_some() {
        let is_set = |key: &str| old.or(new).is_some_and(|m| m.contains_key(key));
        for field in map.fields.iter().filter(|f| f.implied.is_some() && !is_set(&f.name)) {
            visit(
                &field.name,
                type_ref.with_id(field.type_id),
                implied(&field.name, old.is_some()),
                implied(&field.name, new.is_some()),
            );
        }
    }
    comparison
}

fn compare_lists(type_ref: TypeRef<'_>, list: &List, old: &[Value], new: &[Value]) -> FieldComparison {
    let mut all: BTreeMap<ListItemKey<'_>, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Ok(list_item_key) = list_item_key(type_ref, list, item) {
            all.entry(list_item_key).or_default().0.push(item);
        }
    }
    for item in new {
        if let Ok(list_item_key) = list_item_key(type_ref, list, item) {
            all.entry(list_item_key).or_default().1.push(item);
        }
    }
    let mut comparison = FieldComparison::default();
    for (list_item_key, (old, new)) in all {
        let nested = match (old.as_slice(), new.as_slice()) {
            (old @ ([] | [_]), new @ ([] | [_])) => {
                compare_values(type_ref.with_id(list.element), old.first().copied(), new.first().copied())
            }
            // Duplicate items are owned together.
            ([_, _, ..], [_, _, ..]) => {
                FieldComparison { modified: !are_equal(&old, &new), ..FieldComparison::default() }
            }
            ([_, _, ..], new) => {
                let comparison = compare_values(type_ref.with_id(list.element), None, new.first().copied());
                FieldComparison { removed: true, added: !new.is_empty(), ..comparison }
            }
            (old, _) => {
                let comparison = compare_values(type_ref.with_id(list.element), old.first().copied(), None);
                FieldComparison { removed: !old.is_empty(), added: true, ..comparison }
            }
        };
        if !nested.is_empty() {
            comparison.insert_nested((&list_item_key).into(), nested);
        }
    }
    comparison
}

fn are_equal(old: &[&Value], new: &[&Value]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(l, r)| value::equal(l, r))
}
