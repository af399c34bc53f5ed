//! Resources within others: `x-kubernetes-embedded-resource`.

use crate::Schema;
use api::field::FieldPath;
use serde_json::Value;

/// Where a resource is within another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// For [`Value::pointer`].
    pub pointer: String,
    /// As people write it.
    pub path: FieldPath,
}

impl Schema {
    /// All resources within this one, the outer ones first. The resource itself is none of them.
    #[must_use]
    pub fn embedded_in(&self, resource: &Value) -> Vec<Place> {
        let mut found = Vec::new();
        if self.has_embedded {
            self.find_embedded(resource, &Place { pointer: String::new(), path: FieldPath::default() }, &mut found);
        }
        found
    }

    fn find_embedded(&self, value: &Value, here: &Place, found: &mut Vec<Place>) {
        if self.embedded && value.is_object() {
            found.push(here.clone());
        }
        let below = |name: &str, path| {
            let name = name.replace('~', "~0").replace('/', "~1");
            Place { pointer: format!("{}/{name}", here.pointer), path }
        };
        match value {
            Value::Object(fields) => {
                for (name, held) in fields {
                    if let Some(schema) = self.properties.get(name.as_str()) {
                        schema.find_embedded(held, &below(name, here.path.child(name)), found);
                    } else if let Some(schema) = self.additional.schema() {
                        schema.find_embedded(held, &below(name, here.path.key(name)), found);
                    }
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        schema.find_embedded(item, &below(&i.to_string(), here.path.index(i)), found);
                    }
                }
            }
            _ => {}
        }
    }
}
