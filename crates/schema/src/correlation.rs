//! Correlation of new and old values for ratcheting and transition rules
//! (`CorrelatedObject` of upstream's `apiserver/pkg/cel/common`).

use crate::{ListType, Schema};
use serde_json::Value;
use std::collections::HashMap;

/// Returns whether two values are equal; numbers are compared by value.
pub(crate) fn are_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => l == r || l.as_f64() == r.as_f64(),
        (Value::Array(l), Value::Array(r)) => l.len() == r.len() && l.iter().zip(r).all(|(l, r)| are_equal(l, r)),
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len() && l.iter().all(|(k, v)| r.get(k).is_some_and(|other| are_equal(v, other)))
        }
        _ => left == right,
    }
}

impl Schema {
    /// Returns whether a value is unchanged; items of lists of type `map` may be reordered (`CachedDeepEqual`).
    pub(crate) fn unchanged(&self, old: &Value, new: &Value) -> bool {
        match (old, new) {
            (Value::Array(old_fields), Value::Array(items)) => {
                old_fields.len() == items.len() && (are_equal(old, new) || self.is_reordered(old, items))
            }
            (Value::Object(old_fields), Value::Object(fields)) => {
                let unchanged = |name: &str, old: &Value, new: &Value| match self.field(name) {
                    Some(schema) => schema.unchanged(old, new),
                    None => are_equal(old, new),
                };
                old_fields.len() == fields.len()
                    && fields
                        .iter()
                        .all(|(name, new)| old_fields.get(name).is_some_and(|old| unchanged(name, old, new)))
            }
            _ => are_equal(old, new),
        }
    }

    fn is_reordered(&self, old: &Value, items: &[Value]) -> bool {
        let (ListType::Map(_), Some(item_schema)) = (&self.list_type, &self.items) else { return false };
        let old_items = OldItems::of(self, Some(old));
        items.iter().all(|item| old_items.find(item).is_some_and(|old_item| item_schema.unchanged(old_item, item)))
    }

    /// Returns the schema of a field of an object.
    fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional.schema())
    }

    /// Returns the key fields of a list item, with defaults.
    pub(crate) fn key_of<'a>(&'a self, keys: &'a [Box<str>], item: &'a Value) -> Vec<&'a Value> {
        let property = |key: &str| self.items.as_ref().and_then(|items| items.properties.get(key));
        let value = |key: &'a str| {
            item.get(key).or_else(|| property(key).and_then(|p| p.default.as_ref())).unwrap_or(&Value::Null)
        };
        keys.iter().map(AsRef::as_ref).map(value).collect()
    }
}

/// The old items of a list by their keys; empty for lists without keys.
pub(crate) struct OldItems<'a> {
    list: &'a Schema,
    keys: &'a [Box<str>],
    items: HashMap<Vec<&'a Value>, &'a Value>,
}

impl<'a> OldItems<'a> {
    pub(crate) fn of(list: &'a Schema, old: Option<&'a Value>) -> Self {
        let keys: &[Box<str>] = if let ListType::Map(keys) = &list.list_type { keys } else { &[] };
        let mut items = HashMap::new();
        if !keys.is_empty() {
            // The first of several items with the same key is used.
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                items.entry(list.key_of(keys, item)).or_insert(item);
            }
        }
        Self { list, keys, items }
    }

    /// Returns the old value of an item.
    pub(crate) fn find(&self, item: &'a Value) -> Option<&'a Value> {
        if self.items.is_empty() { None } else { self.items.get(&self.list.key_of(self.keys, item)).copied() }
    }
}
