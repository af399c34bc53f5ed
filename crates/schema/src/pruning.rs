//! Pruning of unknown fields.

use crate::{RESOURCE_FIELDS, Schema};
use api::bounded_messages::BoundedMessages;
use serde_json::{Map, Value};

/// Paths of pruned fields, for example `spec.list[0].field`.
pub type UnknownFields = Vec<String>;

/// State of pruning: the current path and the pruned fields.
struct Pruner {
    path: String,
    unknown: BoundedMessages,
}

impl Schema {
    /// Removes unknown fields of a resource and returns their paths. `apiVersion`, `kind` and `metadata` are kept.
    pub fn prune(&self, resource: &mut Value) -> UnknownFields {
        let mut pruner = Pruner { path: String::new(), unknown: BoundedMessages::default() };
        pruner.prune_value(resource, Some(self), true);
        let mut unknown = pruner.unknown.into_messages();
        unknown.sort();
        unknown
    }

    /// Removes unknown fields of a value that is not a resource.
    pub(crate) fn prune_value(&self, value: &mut Value) -> UnknownFields {
        let mut pruner = Pruner { path: String::new(), unknown: BoundedMessages::default() };
        pruner.prune_value(value, Some(self), false);
        pruner.unknown.into_messages()
    }
}

impl Pruner {
    fn prune_value(&mut self, value: &mut Value, schema: Option<&Schema>, root: bool) {
        match value {
            Value::Object(fields) => self.prune_object(fields, schema, root),
            Value::Array(items) => {
                let items_schema = schema.and_then(|s| s.items.as_deref());
                for (i, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{i}]"));
                    self.prune_item(item, schema, items_schema);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Prunes a list item. Items without a schema in a list that preserves unknown fields are kept.
    fn prune_item(&mut self, item: &mut Value, list: Option<&Schema>, schema: Option<&Schema>) {
        if schema.is_some() || !list.is_some_and(|l| l.preserve_unknown_fields) {
            self.prune_value(item, schema, false);
        }
    }

    fn prune_object(&mut self, fields: &mut Map<String, Value>, schema: Option<&Schema>, root: bool) {
        let preserve = schema.is_some_and(|s| s.preserve_unknown_fields);
        let resource = root || schema.is_some_and(|s| s.embedded);
        fields.retain(|key, value| {
            if resource && RESOURCE_FIELDS.contains(&key.as_str()) {
                return true;
            }
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(key);
            let property = schema.and_then(|s| s.properties.get(key.as_str()));
            let additional = schema.map(|s| &s.additional).filter(|a| a.is_specified());
            let retained = match (property, additional) {
                (Some(property), _) => {
                    self.prune_value(value, Some(property), false);
                    true
                }
                (None, Some(additional)) => {
                    self.prune_value(value, additional.schema(), false);
                    true
                }
                (None, None) => preserve,
            };
            if !retained {
                self.unknown.push(|| self.path.clone());
            }
            self.path.truncate(length);
            retained
        });
    }
}
