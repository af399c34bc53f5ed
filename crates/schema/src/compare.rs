//! Whether a value is what it was, and what an item of a list was before
//! (`CorrelatedObject` of upstream's `apiserver/pkg/cel/common`).

use crate::{ListType, Schema};
use serde_json::Value;
use std::collections::HashMap;

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
    /// Whether a value of this is what it was: items that are told apart by keys may have moved (`CachedDeepEqual`).
    pub(crate) fn unchanged(&self, old: &Value, new: &Value) -> bool {
        match (old, new) {
            (Value::Array(before), Value::Array(items)) => {
                before.len() == items.len() && (same(old, new) || self.only_moved(old, items))
            }
            (Value::Object(before), Value::Object(fields)) => {
                let unchanged = |name: &str, old: &Value, new: &Value| match self.field(name) {
                    Some(schema) => schema.unchanged(old, new),
                    None => same(old, new),
                };
                before.len() == fields.len()
                    && fields.iter().all(|(name, new)| before.get(name).is_some_and(|old| unchanged(name, old, new)))
            }
            _ => same(old, new),
        }
    }

    fn only_moved(&self, old: &Value, items: &[Value]) -> bool {
        let (ListType::Map(_), Some(part)) = (&self.list, &self.items) else { return false };
        let earlier = Earlier::of(self, Some(old));
        items.iter().all(|item| earlier.find(item).is_some_and(|before| part.unchanged(before, item)))
    }

    /// What is said of this field of an object.
    fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional.schema())
    }

    /// The values that tell an item of this list apart, with the defaults of those that it does not say.
    pub(crate) fn key_of<'a>(&'a self, keys: &'a [Box<str>], item: &'a Value) -> Vec<&'a Value> {
        let property = |key: &str| self.items.as_ref().and_then(|items| items.properties.get(key));
        let value = |key: &'a str| {
            item.get(key).or_else(|| property(key).and_then(|p| p.default.as_ref())).unwrap_or(&Value::Null)
        };
        keys.iter().map(AsRef::as_ref).map(value).collect()
    }
}

/// What the items of a list were before, if that can be known.
pub(crate) struct Earlier<'a> {
    list: &'a Schema,
    keys: &'a [Box<str>],
    items: HashMap<Vec<&'a Value>, &'a Value>,
}

impl<'a> Earlier<'a> {
    pub(crate) fn of(list: &'a Schema, old: Option<&'a Value>) -> Self {
        let keys: &[Box<str>] = if let ListType::Map(keys) = &list.list { keys } else { &[] };
        let mut items = HashMap::new();
        if !keys.is_empty() {
            // Of several with the same keys, it is the first.
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                items.entry(list.key_of(keys, item)).or_insert(item);
            }
        }
        Self { list, keys, items }
    }

    /// What this item was.
    pub(crate) fn find(&self, item: &'a Value) -> Option<&'a Value> {
        if self.items.is_empty() { None } else { self.items.get(&self.list.key_of(self.keys, item)).copied() }
    }
}
