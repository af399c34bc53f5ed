//! Defaulting, and pruning of nulls of non-nullable fields (`structuraldefaulting`).

use crate::Schema;
use serde_json::Value;

impl Schema {
    /// Applies defaults and removes nulls of non-nullable fields without defaults.
    pub fn apply_defaults(&self, value: &mut Value) {
        self.fill_defaults(value);
        self.prune_nulls(value);
    }

    fn fill_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, property) in &self.properties {
                    let Some(default) = &property.default else { continue };
                    let value = fields.get(name.as_ref());
                    if value.is_none_or(|value| property.is_disallowed_null(value)) {
                        fields.insert(name.to_string(), default.clone());
                    }
                }
                for (name, value) in fields.iter_mut() {
                    let declared = self.properties.get(name.as_str());
                    let Some(schema) = declared.or(self.additional.schema()) else { continue };
                    schema.replace_null(value);
                    schema.fill_defaults(value);
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    schema.replace_null(item);
                    schema.fill_defaults(item);
                }
            }
            _ => {}
        }
    }

    /// Replaces a null of a non-nullable field by the default, if there is one.
    fn replace_null(&self, value: &mut Value) {
        if let Some(default) = self.default.as_ref().filter(|_| self.is_disallowed_null(value)) {
            *value = default.clone();
        }
    }

    /// Returns whether the value is a null that is not allowed.
    fn is_disallowed_null(&self, value: &Value) -> bool {
        value.is_null() && !self.nullable
    }

    fn prune_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.retain(|name, value| {
                let declared = self.properties.get(name.as_str());
                let Some(schema) = declared.or(self.additional.schema()) else { return true };
                if schema.is_disallowed_null(value) && schema.default.is_none() {
                    return false;
                }
                schema.prune_nulls(value);
                true
            }),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.prune_nulls(item));
                }
            }
            _ => {}
        }
    }
}
