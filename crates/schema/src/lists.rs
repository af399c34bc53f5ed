//! Sets hold nothing twice, and neither do lists whose items are told apart by keys.

use crate::{ListType, Schema};
use api::field::{FieldErrors, FieldPath};
use serde_json::{Map, Value};
use std::collections::HashMap;

impl Schema {
    /// Finds what stands twice where it may not.
    pub(crate) fn lists(&self, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
        match value {
            Value::Object(fields) => {
                for (name, held) in fields {
                    if let Some(schema) = self.properties.get(name.as_str()) {
                        schema.lists(held, &path.child(name), errors);
                    } else if let Some(schema) = self.additional.schema() {
                        schema.lists(held, &path.key(name), errors);
                    }
                }
            }
            Value::Array(items) => {
                self.duplicates(items, path, errors);
                if let Some(schema) = &self.items {
                    items.iter().enumerate().for_each(|(i, item)| schema.lists(item, &path.index(i), errors));
                }
            }
            _ => {}
        }
    }

    /// What stands more than twice is told once.
    fn duplicates(&self, items: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (i, item) in items.iter().enumerate() {
            let shown = match &self.list {
                ListType::Atomic => return,
                ListType::Set => item.clone(),
                ListType::Map(keys) => {
                    let values = self.key_of(keys, item).into_iter().cloned();
                    Value::Object(keys.iter().map(ToString::to_string).zip(values).collect::<Map<_, _>>())
                }
            };
            let times = seen.entry(shown.to_string()).or_insert(0);
            *times += 1;
            if *times == 2 {
                errors.duplicate(&path.index(i), &shown);
            }
        }
    }
}
