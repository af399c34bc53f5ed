//! JSON patch (RFC 6902), with bounds on what a small patch can make of an object.

use crate::{decode::Parsed, status::ApiError};
use ::json_patch::{Patch, PatchOperation};
use serde_json::Value;

/// Upstream's bound on the operations of one patch.
const MAX_OPERATIONS: usize = 10_000;
/// Upstream's bound on what all `copy` operations of one patch add, in bytes.
const MAX_COPIED: usize = 3 << 20;
/// How deep an object may become on the way; bodies are no deeper than 128.
const MAX_DEPTH: usize = 256;

pub(super) fn apply(mut value: Value, patch: &[u8]) -> Result<Parsed, ApiError> {
    let patch: Patch = serde_json::from_slice(patch).map_err(|e| undecodable(patch, &e))?;
    if patch.0.len() > MAX_OPERATIONS {
        let text = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            patch.0.len()
        );
        return Err(ApiError::new(413, "RequestEntityTooLarge", text));
    }
    let mut copied = 0;
    for operation in &patch.0 {
        if asks_for_nothing(&value, operation) {
            continue;
        }
        check_growth(&value, operation, &mut copied).map_err(|e| rejected(&e))?;
        ::json_patch::patch(&mut value, std::slice::from_ref(operation)).map_err(|e| rejected(&e.to_string()))?;
    }
    Ok(Parsed { value, duplicates: Vec::new() })
}

/// An operation that does not exist is found as late as when it is carried out, by upstream's library.
fn undecodable(patch: &[u8], error: &serde_json::Error) -> ApiError {
    const KNOWN: [&str; 6] = ["add", "copy", "move", "remove", "replace", "test"];
    let operations: Vec<Value> = serde_json::from_slice(patch).unwrap_or_default();
    match operations.iter().filter_map(|o| o["op"].as_str()).find(|op| !KNOWN.contains(op)) {
        Some(unknown) => rejected(&format!("Unexpected kind: {unknown}")),
        None => ApiError::bad_request(format!("error decoding patch: {error}")),
    }
}

/// Whether it is a test for null of a field that is not there: as upstream's library takes it, and clients that add their
/// finalizer to an object without any rely on it.
fn asks_for_nothing(object: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let Some((above, field)) = test.path.split_back() else { return false };
    let above = object.pointer(above.as_str()).and_then(Value::as_object);
    test.value.is_null() && above.is_some_and(|fields| !fields.contains_key(field.decoded().as_ref()))
}

fn rejected(why: &str) -> ApiError {
    ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request").with_cause(
        "UnexpectedServerResponse",
        why,
        "",
    )
}

fn check_growth(object: &Value, operation: &PatchOperation, copied: &mut usize) -> Result<(), String> {
    let (from, path) = match operation {
        PatchOperation::Add(o) => (None, &o.path),
        PatchOperation::Replace(o) => (None, &o.path),
        PatchOperation::Copy(o) => (Some(&o.from), &o.path),
        PatchOperation::Move(o) => (Some(&o.from), &o.path),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
    };
    let (mut nodes, mut depth) = (0, path.tokens().count());
    if let Some(source) = from.and_then(|from| object.pointer(from.as_str())) {
        depth += measure(source, MAX_DEPTH, &mut nodes);
        // A move is as much work as a copy, though it adds nothing.
        *copied += if matches!(operation, PatchOperation::Copy(_)) { source.to_string().len() } else { nodes };
    }
    if *copied > MAX_COPIED {
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
        ));
    }
    if depth > MAX_DEPTH {
        return Err(format!("the object would be nested deeper than {MAX_DEPTH}"));
    }
    Ok(())
}

/// How deep a value is, as far as `limit`; counts its nodes.
fn measure(value: &Value, limit: usize, nodes: &mut usize) -> usize {
    *nodes += 1;
    if limit == 0 {
        return 1;
    }
    let inner = match value {
        Value::Array(items) => items.iter().map(|v| measure(v, limit - 1, nodes)).max(),
        Value::Object(fields) => fields.values().map(|v| measure(v, limit - 1, nodes)).max(),
        _ => None,
    };
    1 + inner.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(patch: &Value, expected: &Result<Value, u16>) {
        let object = json!({"a": [1, 2], "b": {"c": "x"}});
        let got = apply(object, patch.to_string().as_bytes()).map(|p| p.value).map_err(|e| e.code);
        assert_eq!(got, *expected);
    }

    #[test]
    fn operations_follow_rfc_6902() {
        let ok = |mut change: Box<dyn FnMut(&mut Value)>| {
            let mut object = json!({"a": [1, 2], "b": {"c": "x"}});
            change(&mut object);
            Ok(object)
        };
        check(&json!([{"op": "add", "path": "/a/1", "value": 9}]), &ok(Box::new(|o| o["a"] = json!([1, 9, 2]))));
        check(&json!([{"op": "add", "path": "/a/-", "value": 9}]), &ok(Box::new(|o| o["a"] = json!([1, 2, 9]))));
        check(&json!([{"op": "remove", "path": "/b/c"}]), &ok(Box::new(|o| o["b"] = json!({}))));
        check(&json!([{"op": "replace", "path": "/b", "value": 1}]), &ok(Box::new(|o| o["b"] = json!(1))));
        check(&json!([{"op": "copy", "from": "/b/c", "path": "/d"}]), &ok(Box::new(|o| o["d"] = json!("x"))));
        check(
            &json!([{"op": "test", "path": "/b/c", "value": "x"}, {"op": "replace", "path": "/b/c", "value": "y"}]),
            &ok(Box::new(|o| o["b"]["c"] = json!("y"))),
        );
        check(&json!([{"op": "test", "path": "/b/c", "value": "z"}]), &Err(422));
        check(&json!([{"op": "add"}]), &Err(400));
        check(&json!([{"op": "test", "path": "/nothing", "value": null}]), &ok(Box::new(|_| ())));
        check(&json!([{"op": "test", "path": "/b/c~1d", "value": null}]), &ok(Box::new(|_| ())));
        check(&json!([{"op": "test", "path": "/nothing/below", "value": null}]), &Err(422));
        check(&json!([{"op": "test", "path": "/nothing", "value": 1}]), &Err(422));
        check(&json!([{"op": "test", "path": "/a/7", "value": null}]), &Err(422));
        check(&json!([{"op": "test", "path": "/b/c", "value": null}]), &Err(422));
        check(&json!([{"op": "remove", "path": "/nothing"}]), &Err(422));
        check(&json!([{"op": "replace", "path": "/a/7", "value": 1}]), &Err(422));
        check(&json!([{"op": "leap", "path": "/a"}]), &Err(422));
        check(&json!({"op": "add"}), &Err(400));
        check(&json!(vec![json!({"op": "test", "path": "/a", "value": [1, 2]}); MAX_OPERATIONS + 1]), &Err(413));
    }

    #[test]
    fn copies_of_copies_are_bounded() {
        let twice: Vec<Value> = (0..60).map(|i| json!({"op": "copy", "from": "", "path": format!("/x{i}")})).collect();
        check(&json!(twice), &Err(422));
        let deeper: Vec<Value> = (0..1000).map(|_| json!({"op": "copy", "from": "/b", "path": "/b/b"})).collect();
        check(&json!(deeper), &Err(422));
    }
}
