//! Filling in defaults.

use serde_json::{Map, Value, json};

/// Sets what is not set, or is empty text.
pub(in crate::kinds) fn set(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(|found| found.is_null() || found == "") {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a number that is not set, or is 0.
pub(in crate::kinds) fn set_number(map: &mut Map<String, Value>, key: &str, value: i64) {
    let entry = map.entry(key).or_insert(Value::Null);
    if entry.as_i64().unwrap_or(0) == 0 {
        *entry = json!(value);
    }
}

pub(in crate::kinds) fn each(map: &mut Map<String, Value>, list: &str, mut fill: impl FnMut(&mut Map<String, Value>)) {
    let items = map.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&mut fill);
}

pub(in crate::kinds) fn inner<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// Sets what is not set in the object at this JSON pointer, if there is one.
pub(in crate::kinds) fn at(object: &mut Value, pointer: &str, values: &[(&str, Value)]) {
    let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    values.iter().for_each(|(key, value)| set(map, key, value.clone()));
}

/// The same for numbers of which 0 means that they are not set.
pub(in crate::kinds) fn numbers_at(object: &mut Value, pointer: &str, values: &[(&str, i64)]) {
    let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    values.iter().for_each(|(key, value)| set_number(map, key, *value));
}
