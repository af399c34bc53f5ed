//! What an item of a list was before, and whether two values are the same.

use crate::{ListType, Schema};
use serde_json::Value;

/// Whether two values mean the same: numbers by their value, not by how they are written.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => l == r || l.as_f64() == r.as_f64(),
        (Value::Array(l), Value::Array(r)) => l.len() == r.len() && l.iter().zip(r).all(|(l, r)| same(l, r)),
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len() && l.iter().all(|(k, v)| r.get(k).is_some_and(|other| same(v, other)))
        }
        _ => left == right,
    }
}

impl Schema {
    /// The values that tell an item of this list apart, with the defaults of those that it does not say.
    pub(crate) fn key_of<'a>(&'a self, keys: &'a [Box<str>], item: &'a Value) -> Vec<&'a Value> {
        let property = |key: &str| self.items.as_ref().and_then(|items| items.properties.get(key));
        let value = |key: &'a str| {
            item.get(key).or_else(|| property(key).and_then(|p| p.default.as_ref())).unwrap_or(&Value::Null)
        };
        keys.iter().map(AsRef::as_ref).map(value).collect()
    }

    /// What this item of the list was before, if that can be known.
    pub(crate) fn item_before<'a>(&'a self, item: &'a Value, old: Option<&'a Value>) -> Option<&'a Value> {
        let ListType::Map(keys) = &self.list else { return None };
        let wanted = self.key_of(keys, item);
        old?.as_array()?.iter().find(|before| self.key_of(keys, before) == wanted)
    }
}
