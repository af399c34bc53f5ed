//! Helpers for defaulting.

use serde_json::{Map, Value, json};

/// Sets a field that is absent, null or an empty string.
pub(crate) fn set_default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(|found| found.is_null() || found == "") {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a number that is absent, null or 0.
pub(crate) fn set_number_default(map: &mut Map<String, Value>, key: &str, value: i64) {
    let entry = map.entry(key).or_insert(Value::Null);
    if entry.as_i64().unwrap_or(0) == 0 {
        *entry = json!(value);
    }
}

pub(crate) fn for_each_item(
    map: &mut Map<String, Value>,
    list: &str,
    mut set_defaults: impl FnMut(&mut Map<String, Value>),
) {
    let items = map.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&mut set_defaults);
}

pub(crate) fn object_field<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// Sets defaults in the object at a JSON pointer, if it exists.
pub(crate) fn set_defaults_at(object: &mut Value, pointer: &str, values: &[(&str, Value)]) {
    let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    values.iter().for_each(|(key, value)| set_default(map, key, value.clone()));
}

/// Sets defaults for numbers in the object at a JSON pointer, if it exists; 0 counts as unset.
pub(crate) fn set_number_defaults_at(object: &mut Value, pointer: &str, values: &[(&str, i64)]) {
    let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    values.iter().for_each(|(key, value)| set_number_default(map, key, *value));
}
