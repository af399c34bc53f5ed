//! What a configuration makes of an object.

use crate::{
    identity::{Identity, identity},
    schema::{List, ListType, Map, Shape, TypeRef},
    validate::check_scalar,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The object with everything in it that the configuration says; nothing goes. Both are of this type.
///
/// The configuration becomes the result: what only the object has is put into it. Lists keep the order of the object where
/// the configuration says nothing else about it.
#[must_use]
pub fn merge(of: TypeRef<'_>, object: Option<&Value>, config: Value) -> Option<Value> {
    any(of, object, Some(config))
}

fn any(of: TypeRef<'_>, left: Option<&Value>, right: Option<Value>) -> Option<Value> {
    // A value that becomes another kind of value is taken as that one.
    match of.shape(right.as_ref().or(left)) {
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
            let items = items(of, list, l.map_or(&[], Vec::as_slice), right);
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
            let merged = fields(of, map, l, right);
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

fn fields(
    of: TypeRef<'_>,
    map: &Map,
    left: Option<&serde_json::Map<String, Value>>,
    right: serde_json::Map<String, Value>,
) -> serde_json::Map<String, Value> {
    let only_left: Vec<(&String, &Value)> =
        left.into_iter().flatten().filter(|(key, _)| !right.contains_key(*key)).collect();
    let mut merged = right;
    merged.retain(|key, value| {
        let l = left.and_then(|left| left.get(key));
        let together = match map.of(key) {
            Some(field) => any(of.at(field), l, Some(value.take())),
            None => Some(l.cloned().unwrap_or_else(|| value.take())),
        };
        let is_kept = together.is_some();
        *value = together.unwrap_or_default();
        is_kept
    });
    // What the configuration does not mention stays as it is.
    merged.extend(only_left.into_iter().map(|(key, l)| (key.clone(), l.clone())));
    merged
}

/// Items of both in the order of the configuration; what only the object has keeps its place among its neighbours.
fn items(of: TypeRef<'_>, list: &List, left: &[Value], mut right: Vec<Value>) -> Vec<Value> {
    let order = order(of, list, left, &right);
    let element = of.at(list.element);
    let mut uses = vec![0; right.len()];
    order.iter().filter_map(|(_, r)| *r).for_each(|r| uses[r] += 1);
    let mut merged = Vec::with_capacity(order.len());
    for (l, r) in order {
        let r = r.map(|r| {
            uses[r] -= 1;
            // What stands twice is needed again.
            if uses[r] > 0 { right[r].clone() } else { right[r].take() }
        });
        merged.extend(any(element, l.map(|l| &left[l]), r));
    }
    merged
}

/// The items of a list, each with what it is and its place; what has no identity is left out.
fn known<'a>(of: TypeRef<'a>, list: &'a List, items: &'a [Value]) -> Vec<(Identity<'a>, usize)> {
    let items = items.iter().enumerate();
    items.filter_map(|(place, item)| Some((identity(of, list, item).ok()?, place))).collect()
}

/// Which items become one, in their order: the place of each in the object and in the configuration.
fn order(of: TypeRef<'_>, list: &List, left: &[Value], right: &[Value]) -> Vec<(Option<usize>, Option<usize>)> {
    let (left, right) = (known(of, list, left), known(of, list, right));
    // Mostly both have the same items in the same order.
    if is_same_order(&left, &right) {
        return left.iter().zip(&right).map(|((_, l), (_, r))| (Some(*l), Some(*r))).collect();
    }
    let mut at_left: BTreeMap<&Identity<'_>, Option<usize>> = BTreeMap::new();
    for (identity, place) in &left {
        // What stands twice in the object is not merged with anything: the configuration replaces both.
        at_left.entry(identity).and_modify(|found| *found = None).or_insert(Some(*place));
    }
    let at_right: BTreeMap<&Identity<'_>, usize> = right.iter().map(|(e, place)| (e, *place)).collect();
    let together =
        |e: &Identity<'_>, r: usize| (at_left.get(e).copied().flatten(), Some(at_right.get(e).copied().unwrap_or(r)));
    let mut shared = right.iter().map(|(e, _)| e).filter(|e| at_left.contains_key(e));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&Identity<'_>> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut l, mut r) = (left.iter().peekable(), right.iter().peekable());
    while l.peek().is_some() || r.peek().is_some() {
        if let (Some((le, _)), Some((re, ri))) = (l.peek(), r.peek()) {
            if le == re {
                merged.insert(re);
                out.push(together(re, *ri));
                l.next();
                r.next();
                next_shared = shared.next();
                continue;
            }
            if at_right.contains_key(le) && next_shared.is_some_and(|next| next != le) {
                // It is in the configuration, which has it at another place.
                l.next();
                continue;
            }
        }
        if let Some((le, li)) = l.peek() {
            if !at_right.contains_key(le) {
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
            out.push(together(re, *ri));
            if next_shared == Some(re) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// Whether two lists have the same items in the same order, each of them once.
fn is_same_order(left: &[(Identity<'_>, usize)], right: &[(Identity<'_>, usize)]) -> bool {
    let is_same = left.len() == right.len() && left.iter().zip(right).all(|((l, _), (r, _))| l == r);
    is_same && left.iter().map(|(identity, _)| identity).collect::<BTreeSet<_>>().len() == left.len()
}
