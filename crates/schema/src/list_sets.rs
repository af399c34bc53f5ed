//! Uniqueness of items of lists of type `set` and `map` (`ValidateListSetsAndMaps`).

use crate::{ListType, Schema};
use api::field::{FieldErrors, FieldPath};
use serde_json::{Map, Value};
use std::collections::HashMap;

impl Schema {
    /// Finds duplicate items of this and all nested lists.
    pub(crate) fn validate_list_sets(&self, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(schema) = self.properties.get(name.as_str()) {
                        schema.validate_list_sets(value, &path.child(name), errors);
                    } else if let Some(schema) = self.additional.schema() {
                        schema.validate_list_sets(value, &path.key(name), errors);
                    }
                }
            }
            Value::Array(items) => {
                self.find_duplicates(items, path, errors);
                if let Some(schema) = &self.items {
                    items
                        .iter()
                        .enumerate()
                        .for_each(|(i, item)| schema.validate_list_sets(item, &path.index(i), errors));
                }
            }
            _ => {}
        }
    }

    /// Finds duplicate items of a list; each value is reported once.
    fn find_duplicates(&self, items: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (i, item) in items.iter().enumerate() {
            let key = match &self.list_type {
                ListType::Atomic => return,
                ListType::Set => item.clone(),
                ListType::Map(keys) => {
                    let values = self.key_of(keys, item).into_iter().cloned();
                    Value::Object(keys.iter().map(ToString::to_string).zip(values).collect::<Map<_, _>>())
                }
            };
            let count = seen.entry(key.to_string()).or_insert(0);
            *count += 1;
            if *count == 2 {
                errors.duplicate(&path.index(i), &key);
            }
        }
    }
}
