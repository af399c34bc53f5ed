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
/// Lists keep the order of the object where the configuration says nothing else about it.
#[must_use]
pub fn merge(of: TypeRef<'_>, object: Option<&Value>, config: &Value) -> Option<Value> {
    any(of, object, Some(config))
}

fn any(of: TypeRef<'_>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    // A value that becomes another kind of value is taken as that one.
    match of.shape(right.or(left)) {
        Shape::Scalar(scalar) => match right {
            Some(value) if check_scalar(scalar, value).is_ok() => Some(value.clone()),
            _ => left.cloned(),
        },
        Shape::List(list) => {
            let (l, r) = (left.and_then(Value::as_array), right.and_then(Value::as_array));
            let empty = |v: Option<&Vec<Value>>| v.is_none_or(Vec::is_empty);
            if list.list_type == ListType::Atomic || (empty(l) && empty(r)) {
                return right.or(left).cloned();
            }
            let items = items(of, list, l.map_or(&[], Vec::as_slice), r.map_or(&[], Vec::as_slice));
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Shape::Map(map) => {
            let (l, r) = (left.and_then(Value::as_object), right.and_then(Value::as_object));
            let empty = |v: Option<&serde_json::Map<String, Value>>| v.is_none_or(serde_json::Map::is_empty);
            if map.atomic || (empty(l) && empty(r)) {
                return right.or(left).cloned();
            }
            let merged = fields(of, map, l, r);
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

fn fields(
    of: TypeRef<'_>,
    map: &Map,
    left: Option<&serde_json::Map<String, Value>>,
    right: Option<&serde_json::Map<String, Value>>,
) -> serde_json::Map<String, Value> {
    let mut merged = serde_json::Map::new();
    for (key, l) in left.into_iter().flatten() {
        match (right.and_then(|r| r.get(key)), map.of(key)) {
            // What the configuration does not mention stays as it is.
            (None, _) | (_, None) => drop(merged.insert(key.clone(), l.clone())),
            (r, Some(field)) => merged.extend(any(of.at(field), Some(l), r).map(|v| (key.clone(), v))),
        }
    }
    for (key, r) in right.into_iter().flatten().filter(|(k, _)| left.is_none_or(|l| !l.contains_key(*k))) {
        match map.of(key) {
            None => drop(merged.insert(key.clone(), r.clone())),
            Some(field) => merged.extend(any(of.at(field), None, Some(r)).map(|v| (key.clone(), v))),
        }
    }
    merged
}

/// The items of a list, each with what it is; what has no identity is left out.
fn known<'a>(of: TypeRef<'a>, list: &'a List, items: &'a [Value]) -> Vec<(Identity<'a>, &'a Value)> {
    items.iter().filter_map(|i| Some((identity(of, list, i).ok()?, i))).collect()
}

/// Items of both in the order of the configuration; what only the object has keeps its place among its neighbours.
fn items<'a>(of: TypeRef<'a>, list: &'a List, left: &'a [Value], right: &'a [Value]) -> Vec<Value> {
    let (left, right) = (known(of, list, left), known(of, list, right));
    let mut at_left: BTreeMap<&Identity<'a>, Option<&Value>> = BTreeMap::new();
    for (identity, item) in &left {
        // What stands twice in the object is not merged with anything: the configuration replaces both.
        at_left.entry(identity).and_modify(|found| *found = None).or_insert(Some(item));
    }
    let at_right: BTreeMap<&Identity<'a>, &Value> = right.iter().map(|(e, i)| (e, *i)).collect();
    let element = of.at(list.element);
    let together = |e: &Identity<'a>, item: &Value| {
        any(element, at_left.get(e).copied().flatten(), Some(at_right.get(e).copied().unwrap_or(item)))
    };
    let mut shared = right.iter().map(|(e, _)| e).filter(|e| at_left.contains_key(e));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&Identity<'a>> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut l, mut r) = (left.iter().peekable(), right.iter().peekable());
    while l.peek().is_some() || r.peek().is_some() {
        if let (Some((le, _)), Some((re, ri))) = (l.peek(), r.peek()) {
            if le == re {
                merged.insert(re);
                out.extend(together(re, ri));
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
                out.extend(any(element, Some(li), None));
                l.next();
                continue;
            }
            if merged.contains(le) {
                l.next();
            }
        }
        if let Some((re, ri)) = r.next() {
            merged.insert(re);
            out.extend(together(re, ri));
            if next_shared == Some(re) {
                next_shared = shared.next();
            }
        }
    }
    out
}
