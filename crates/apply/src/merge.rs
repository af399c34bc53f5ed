//! Merging of the values of an apply configuration into an object (`TypedValue.Merge`). `updater.rs` decides about
//! ownership, conflicts and pruning.

use crate::{
    list_item_key::{ListItemKey, list_item_key},
    schema::{List, ListType, Map, Shape, TypeRef},
    validate::check_scalar,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Merges a configuration into an object of the same type (`TypedValue.Merge`). Nothing is removed.
///
/// Fields that only the object has are added to the configuration, which becomes the result. Lists keep the order of the
/// object unless the configuration has another one.
#[must_use]
pub fn merge(type_ref: TypeRef<'_>, object: Option<&Value>, config: Value) -> Option<Value> {
    merge_values(type_ref, object, Some(config))
}

fn merge_values(type_ref: TypeRef<'_>, left: Option<&Value>, right: Option<Value>) -> Option<Value> {
    // If the kind of value changes, the configuration's kind is used.
    match type_ref.shape(right.as_ref().or(left)) {
        Shape::Scalar(scalar) => match right {
            Some(value) if check_scalar(scalar, &value).is_ok() => Some(value),
            _ => left.cloned(),
        },
        Shape::List(list) => {
            let (l, r) = (left.and_then(Value::as_array), right.as_ref().and_then(Value::as_array));
            let empty = |v: Option<&Vec<Value>>| v.is_none_or(Vec::is_empty);
            if list.list_type == ListType::Atomic || (empty(l) && empty(r)) {
                return right.or_else(|| left.cloned());
            }
            let right = match right {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            let items = merge_lists(type_ref, list, l.map_or(&[], Vec::as_slice), right);
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Shape::Map(map) => {
            let (l, r) = (left.and_then(Value::as_object), right.as_ref().and_then(Value::as_object));
            let empty = |v: Option<&serde_json::Map<String, Value>>| v.is_none_or(serde_json::Map::is_empty);
            if map.atomic || (empty(l) && empty(r)) {
                return right.or_else(|| left.cloned());
            }
            let right = match right {
                Some(Value::Object(fields)) => fields,
                _ => serde_json::Map::new(),
            };
            let merged = merge_maps(type_ref, map, l, right);
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

fn merge_maps(
    type_ref: TypeRef<'_>,
    map: &Map,
    left: Option<&serde_json::Map<String, Value>>,
    right: serde_json::Map<String, Value>,
) -> serde_json::Map<String, Value> {
    let only_left: Vec<(&String, &Value)> =
        left.into_iter().flatten().filter(|(key, _)| !right.contains_key(*key)).collect();
    let mut merged = right;
    merged.retain(|key, value| {
        let l = left.and_then(|left| left.get(key));
        let merged_value = match map.field_type(key) {
            Some(field) => merge_values(type_ref.with_id(field), l, Some(value.take())),
            None => Some(l.cloned().unwrap_or_else(|| value.take())),
        };
        let is_kept = merged_value.is_some();
        *value = merged_value.unwrap_or_default();
        is_kept
    });
    // Fields that are not in the configuration are unchanged.
    merged.extend(only_left.into_iter().map(|(key, l)| (key.clone(), l.clone())));
    merged
}

/// Merges list items in the order of the configuration; items that only the object has stay next to their neighbors.
fn merge_lists(type_ref: TypeRef<'_>, list: &List, left: &[Value], mut right: Vec<Value>) -> Vec<Value> {
    let order = merge_order(type_ref, list, left, &right);
    let element = type_ref.with_id(list.element);
    let mut uses = vec![0; right.len()];
    order.iter().filter_map(|(_, r)| *r).for_each(|r| uses[r] += 1);
    let mut merged = Vec::with_capacity(order.len());
    for (l, r) in order {
        let r = r.map(|r| {
            uses[r] -= 1;
            // A duplicate is used again.
            if uses[r] > 0 { right[r].clone() } else { right[r].take() }
        });
        merged.extend(merge_values(element, l.map(|l| &left[l]), r));
    }
    merged
}

/// Returns keys and indices of the items of a list, without items that have no valid key.
fn keyed_items<'a>(type_ref: TypeRef<'a>, list: &'a List, items: &'a [Value]) -> Vec<(ListItemKey<'a>, usize)> {
    let items = items.iter().enumerate();
    items.filter_map(|(index, item)| Some((list_item_key(type_ref, list, item).ok()?, index))).collect()
}

/// Returns the order of the merged items, each with its index in the object and in the configuration.
fn merge_order(
    type_ref: TypeRef<'_>,
    list: &List,
    left: &[Value],
    right: &[Value],
) -> Vec<(Option<usize>, Option<usize>)> {
    let (left, right) = (keyed_items(type_ref, list, left), keyed_items(type_ref, list, right));
    // Usually both have the same items in the same order.
    if is_same_order(&left, &right) {
        return left.iter().zip(&right).map(|((_, l), (_, r))| (Some(*l), Some(*r))).collect();
    }
    let mut left_indices: BTreeMap<&ListItemKey<'_>, Option<usize>> = BTreeMap::new();
    for (list_item_key, index) in &left {
        // Duplicates in the object are not merged; the configuration replaces them.
        left_indices.entry(list_item_key).and_modify(|found| *found = None).or_insert(Some(*index));
    }
    let right_indices: BTreeMap<&ListItemKey<'_>, usize> = right.iter().map(|(e, index)| (e, *index)).collect();
    let merged_indices = |e: &ListItemKey<'_>, r: usize| {
        (left_indices.get(e).copied().flatten(), Some(right_indices.get(e).copied().unwrap_or(r)))
    };
    let mut shared = right.iter().map(|(e, _)| e).filter(|e| left_indices.contains_key(e));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&ListItemKey<'_>> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut l, mut r) = (left.iter().peekable(), right.iter().peekable());
    while l.peek().is_some() || r.peek().is_some() {
        if let (Some((le, _)), Some((re, ri))) = (l.peek(), r.peek()) {
            if le == re {
                merged.insert(re);
                out.push(merged_indices(re, *ri));
                l.next();
                r.next();
                next_shared = shared.next();
                continue;
            }
            if right_indices.contains_key(le) && next_shared.is_some_and(|next| next != le) {
                // The configuration has the item at another index.
                l.next();
                continue;
            }
        }
        if let Some((le, li)) = l.peek() {
            if !right_indices.contains_key(le) {
                out.push((Some(*li), None));
                l.next();
                continue;
            }
            if merged.contains(le) {
                l.next();
            }
        }
        if let Some((re, ri)) = r.next() {
            merged.insert(re);
            out.push(merged_indices(re, *ri));
            if next_shared == Some(re) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// Returns whether two lists have the same items in the same order, without duplicates.
fn is_same_order(left: &[(ListItemKey<'_>, usize)], right: &[(ListItemKey<'_>, usize)]) -> bool {
    let is_same = left.len() == right.len() && left.iter().zip(right).all(|((l, _), (r, _))| l == r);
    is_same && left.iter().map(|(list_item_key, _)| list_item_key).collect::<BTreeSet<_>>().len() == left.len()
}
