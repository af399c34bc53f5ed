//! Objects of requests and responses in audit events.

use bytes::Bytes;
use serde_json::{Value, json};

/// Decodes the object in a request body, in JSON or YAML.
pub(super) fn decode_object(body: &Bytes, content_type: &str) -> Option<Value> {
    if content_type.ends_with("yaml") {
        serde_saphyr::from_str(std::str::from_utf8(body).ok()?).ok()
    } else {
        serde_json::from_slice(body).ok()
    }
}

/// Returns the fields of a `Status` that are logged at all levels.
pub(super) fn status_of(object: &Value, code: u16) -> Value {
    let mut status = json!({"metadata": {}, "code": code});
    for field in ["status", "message", "reason", "details"] {
        if !object[field].is_null() {
            status[field] = object[field].clone();
        }
    }
    status
}

/// Removes managed fields of an object, of list items, and of the objects in table rows.
pub(super) fn strip_managed_fields(object: &mut Value) {
    let strip = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    strip(object);
    for list in ["items", "rows"] {
        for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            strip(item);
            item.get_mut("object").into_iter().for_each(strip);
        }
    }
}
