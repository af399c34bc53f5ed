//! What is not declared is left out.

use crate::{OF_EVERY_KIND, Schema};
use api::findings::Findings;
use serde_json::{Map, Value};

/// The fields that were left out, as `spec.list[0].field`.
pub type Unknown = Vec<String>;

/// Goes through an object, and knows where it is.
struct Pruner {
    path: String,
    unknown: Findings,
}

impl Schema {
    /// Leaves out what is not declared; says what that was. This is the schema of a whole resource: its version, kind and
    /// metadata stay as they are.
    pub fn prune(&self, resource: &mut Value) -> Unknown {
        let mut pruner = Pruner { path: String::new(), unknown: Findings::default() };
        pruner.any(resource, Some(self), true);
        let mut unknown = pruner.unknown.into_texts();
        unknown.sort();
        unknown
    }

    /// Leaves out what is not declared of a value that is no resource.
    pub(crate) fn prune_value(&self, value: &mut Value) -> Unknown {
        let mut pruner = Pruner { path: String::new(), unknown: Findings::default() };
        pruner.any(value, Some(self), false);
        pruner.unknown.into_texts()
    }
}

impl Pruner {
    fn any(&mut self, value: &mut Value, schema: Option<&Schema>, root: bool) {
        match value {
            Value::Object(fields) => self.object(fields, schema, root),
            Value::Array(items) => {
                let items_schema = schema.and_then(|s| s.items.as_deref());
                for (i, item) in items.iter_mut().enumerate() {
                    let at = self.path.len();
                    self.path.push_str(&format!("[{i}]"));
                    self.item(item, schema, items_schema);
                    self.path.truncate(at);
                }
            }
            _ => {}
        }
    }

    /// In what is preserved as a whole, only what is declared is looked at.
    fn item(&mut self, item: &mut Value, list: Option<&Schema>, schema: Option<&Schema>) {
        if schema.is_some() || !list.is_some_and(|l| l.preserve) {
            self.any(item, schema, false);
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, schema: Option<&Schema>, root: bool) {
        let preserve = schema.is_some_and(|s| s.preserve);
        let resource = root || schema.is_some_and(|s| s.embedded);
        fields.retain(|key, value| {
            if resource && OF_EVERY_KIND.contains(&key.as_str()) {
                return true;
            }
            let at = self.path.len();
            if at > 0 {
                self.path.push('.');
            }
            self.path.push_str(key);
            let property = schema.and_then(|s| s.properties.get(key.as_str()));
            let additional = schema.map(|s| &s.additional).filter(|a| a.is_said());
            let kept = match (property, additional) {
                (Some(property), _) => {
                    self.any(value, Some(property), false);
                    true
                }
                (None, Some(additional)) => {
                    self.any(value, additional.schema(), false);
                    true
                }
                (None, None) => preserve,
            };
            if !kept {
                self.unknown.push(|| self.path.clone());
            }
            self.path.truncate(at);
            kept
        });
    }
}
