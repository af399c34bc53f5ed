//! Keys that identify the items of associative lists.

use crate::{
    path_element::PathElement,
    schema::{List, ListType, Shape, TypeRef},
    value::{self, lexicographic_order, order},
};
use serde_json::Value;
use std::{cmp::Ordering, fmt};

/// Why an item has no key, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListItemKeyError {
    #[error("invalid indexing of non-associative list")]
    AtomicList,
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    #[error("associative list with keys may not have a null element")]
    NullInMap,
    #[error("associative list with keys may not have non-map elements")]
    ScalarInMap,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    MissingKeys(String),
}

/// Key of an item of an associative list: a borrowed [`PathElement`] with the same order.
#[derive(Debug, Clone)]
pub(crate) enum ListItemKey<'a> {
    /// Values of the key fields of a list of type `map`, sorted by name.
    Key(Vec<(&'a str, &'a Value)>),
    /// Item of a list of type `set`.
    Value(&'a Value),
}

/// Returns the key of an item of an associative list (`listItemToPathElement`).
///
/// # Errors
/// When the list is atomic, or the item has no valid key.
pub(crate) fn list_item_key<'a>(
    type_ref: TypeRef<'a>,
    list: &'a List,
    item: &'a Value,
) -> Result<ListItemKey<'a>, ListItemKeyError> {
    match &list.list_type {
        ListType::Atomic => Err(ListItemKeyError::AtomicList),
        ListType::Map(keys) => map_item_key(type_ref, list, keys, item),
        ListType::Set => match item {
            Value::Object(_) => Err(ListItemKeyError::MapInSet),
            Value::Array(_) => Err(ListItemKeyError::ListInSet),
            Value::Null => Err(ListItemKeyError::NullInSet),
            plain => Ok(ListItemKey::Value(plain)),
        },
    }
}

fn map_item_key<'a>(
    type_ref: TypeRef<'a>,
    list: &'a List,
    keys: &'a [Box<str>],
    item: &'a Value,
) -> Result<ListItemKey<'a>, ListItemKeyError> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err(ListItemKeyError::NullInMap),
        _ => return Err(ListItemKeyError::ScalarInMap),
    };
    let default = |name: &str| match type_ref.with_id(list.element).shape(None) {
        Shape::Map(map) => map.field(name).and_then(|f| f.default.as_ref()),
        Shape::List(_) | Shape::Scalar(_) => None,
    };
    let mut found = Vec::with_capacity(keys.len());
    for name in keys {
        // A key field may be absent: an item without it differs from items with any value of it.
        if let Some(value) = fields.get(name.as_ref()).or_else(|| default(name)) {
            found.push((name.as_ref(), value));
        }
    }
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(|k| value::quote(k)).collect();
        return Err(ListItemKeyError::MissingKeys(names.join(" ")));
    }
    found.sort_by_key(|(name, _)| *name);
    Ok(ListItemKey::Key(found))
}

impl From<&ListItemKey<'_>> for PathElement {
    fn from(item_key: &ListItemKey<'_>) -> Self {
        match item_key {
            ListItemKey::Key(fields) => Self::Key(fields.iter().map(|(k, v)| ((*k).into(), (*v).clone())).collect()),
            ListItemKey::Value(value) => Self::Value((*value).clone()),
        }
    }
}

impl Ord for ListItemKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Key(l), Self::Key(r)) => {
                let pairs = l.iter().zip(r).map(|((lk, l), (rk, r))| lk.cmp(rk).then_with(|| order(l, r)));
                lexicographic_order(pairs, l.len(), r.len())
            }
            (Self::Value(l), Self::Value(r)) => order(l, r),
            (Self::Key(_), Self::Value(_)) => Ordering::Less,
            (Self::Value(_), Self::Key(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for ListItemKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ListItemKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ListItemKey<'_> {}

impl fmt::Display for ListItemKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PathElement::from(self).fmt(f)
    }
}
