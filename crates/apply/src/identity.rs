//! What makes an item of a merged list the same as another.

use crate::{
    element::Element,
    schema::{List, ListType, Shape, TypeRef},
    value::{self, in_turn, order},
};
use serde_json::Value;
use std::{cmp::Ordering, fmt};

/// What tells an item of a merged list from the others, as it stands in the item: an [`Element`] that owns nothing. They
/// have one order.
#[derive(Debug, Clone)]
pub(crate) enum Identity<'a> {
    /// The values of the key fields, sorted by name.
    Key(Vec<(&'a str, &'a Value)>),
    /// The item of a set.
    Value(&'a Value),
}

/// What tells an item of a merged list from the others.
pub(crate) fn identity<'a>(of: TypeRef<'a>, list: &'a List, item: &'a Value) -> Result<Identity<'a>, String> {
    match &list.list_type {
        ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListType::Map(keys) => key(of, list, keys, item),
        ListType::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            plain => Ok(Identity::Value(plain)),
        },
    }
}

fn key<'a>(of: TypeRef<'a>, list: &'a List, keys: &'a [Box<str>], item: &'a Value) -> Result<Identity<'a>, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let default = |name: &str| match of.at(list.element).shape(None) {
        Shape::Map(map) => map.field(name).and_then(|f| f.default.as_ref()),
        Shape::List(_) | Shape::Scalar(_) => None,
    };
    let mut found = Vec::with_capacity(keys.len());
    for name in keys {
        // A key that is absent and has no default makes another item than any value of it.
        if let Some(value) = fields.get(name.as_ref()).or_else(|| default(name)) {
            found.push((name.as_ref(), value));
        }
    }
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(|k| value::quote(k)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort_by_key(|(name, _)| *name);
    Ok(Identity::Key(found))
}

impl From<&Identity<'_>> for Element {
    fn from(identity: &Identity<'_>) -> Self {
        match identity {
            Identity::Key(fields) => Self::Key(fields.iter().map(|(k, v)| ((*k).into(), (*v).clone())).collect()),
            Identity::Value(value) => Self::Value((*value).clone()),
        }
    }
}

impl Ord for Identity<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Key(l), Self::Key(r)) => {
                let pairs = l.iter().zip(r).map(|((lk, l), (rk, r))| lk.cmp(rk).then_with(|| order(l, r)));
                in_turn(pairs, l.len(), r.len())
            }
            (Self::Value(l), Self::Value(r)) => order(l, r),
            (Self::Key(_), Self::Value(_)) => Ordering::Less,
            (Self::Value(_), Self::Key(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Identity<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Identity<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Identity<'_> {}

impl fmt::Display for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Element::from(self).fmt(f)
    }
}
