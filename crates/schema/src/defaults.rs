//! What stands where nothing was said; and nulls that are no values.

use crate::Schema;
use serde_json::Value;

impl Schema {
    /// Fills in what is not said, and leaves out nulls where null is no value.
    pub fn fill_in(&self, value: &mut Value) {
        self.fill(value);
        self.leave_out_nulls(value);
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, property) in &self.properties {
                    let Some(default) = &property.default else { continue };
                    let held = fields.get(name.as_ref());
                    if held.is_none_or(|held| property.forbids(held)) {
                        fields.insert(name.to_string(), default.clone());
                    }
                }
                for (name, held) in fields.iter_mut() {
                    let declared = self.properties.get(name.as_str());
                    let Some(schema) = declared.or(self.additional.schema()) else { continue };
                    schema.replace_null(held);
                    schema.fill(held);
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    schema.replace_null(item);
                    schema.fill(item);
                }
            }
            _ => {}
        }
    }

    /// A null that is no value becomes the default, if there is one.
    fn replace_null(&self, held: &mut Value) {
        if let Some(default) = self.default.as_ref().filter(|_| self.forbids(held)) {
            *held = default.clone();
        }
    }

    /// Whether this is a null where there may be none.
    fn forbids(&self, held: &Value) -> bool {
        held.is_null() && !self.nullable
    }

    fn leave_out_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.retain(|name, held| {
                let declared = self.properties.get(name.as_str());
                let Some(schema) = declared.or(self.additional.schema()) else { return true };
                if schema.forbids(held) && schema.default.is_none() {
                    return false;
                }
                schema.leave_out_nulls(held);
                true
            }),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.leave_out_nulls(item));
                }
            }
            _ => {}
        }
    }
}
