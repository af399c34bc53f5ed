//! Embedded resources: `x-kubernetes-embedded-resource`.

use crate::Schema;
use api::field::FieldPath;
use serde_json::Value;

/// Location of an embedded resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedResource {
    /// JSON pointer for [`Value::pointer`].
    pub pointer: String,
    /// Field path for messages.
    pub path: FieldPath,
}

impl Schema {
    /// Returns the locations of all embedded resources, outer ones first, without the resource itself.
    #[must_use]
    pub fn embedded_resources(&self, resource: &Value) -> Vec<EmbeddedResource> {
        let mut found = Vec::new();
        if self.has_embedded {
            self.find_embedded(
                resource,
                &EmbeddedResource { pointer: String::new(), path: FieldPath::default() },
                &mut found,
            );
        }
        found
    }

    fn find_embedded(&self, value: &Value, location: &EmbeddedResource, found: &mut Vec<EmbeddedResource>) {
        if self.embedded && value.is_object() {
            found.push(location.clone());
        }
        let nested = |name: &str, path| {
            let name = name.replace('~', "~0").replace('/', "~1");
            EmbeddedResource { pointer: format!("{}/{name}", location.pointer), path }
        };
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(schema) = self.properties.get(name.as_str()) {
                        schema.find_embedded(value, &nested(name, location.path.child(name)), found);
                    } else if let Some(schema) = self.additional.schema() {
                        schema.find_embedded(value, &nested(name, location.path.key(name)), found);
                    }
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        schema.find_embedded(item, &nested(&i.to_string(), location.path.index(i)), found);
                    }
                }
            }
            _ => {}
        }
    }
}
