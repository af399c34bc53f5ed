//! Generates patches of all four types.

use crate::{mutate, rng::SeededRng, values};
use serde_json::{Value, json};

const POINTERS: [&str; 16] = [
    "/metadata/labels/a",
    "/metadata/labels",
    "/metadata/annotations/a~1b",
    "/spec",
    "/spec/replicas",
    "/spec/template/spec/containers/0/image",
    "/spec/list/-",
    "/spec/list/0",
    "/data/a",
    "/metadata/name",
    "/metadata/finalizers",
    "",
    "/",
    "a",
    "/spec/list/99999999999999999999",
    "/a~2",
];

/// Returns the body of a patch of this type for an object.
pub(crate) fn random_patch(rng: &mut SeededRng, media: &str, object: &Value) -> Value {
    match media {
        "application/json-patch+json" => {
            let operations = if rng.chance(2) { 11_000 } else { rng.below(5) };
            (0..operations).map(|_| operation(rng, object)).collect()
        }
        "application/apply-patch+yaml" => {
            let mut applied = object.clone();
            thin(rng, &mut applied, 70);
            applied["apiVersion"] = object["apiVersion"].clone();
            applied["kind"] = object["kind"].clone();
            applied
        }
        strategic => {
            let mut patch = object.clone();
            thin(rng, &mut patch, 40);
            if strategic.contains("strategic") && rng.chance(60) {
                directives(rng, &mut patch);
            }
            if rng.chance(30) {
                patch["metadata"]["labels"] = json!({"a": values::word(rng, "")});
            }
            patch
        }
    }
}

fn operation(rng: &mut SeededRng, object: &Value) -> Value {
    let op = rng.pick(&["add", "replace", "remove", "test", "move", "copy", "add", "replace", "nothing"]);
    let mut value = match rng.below(4) {
        0 => object.clone(),
        1 => json!({"a": "b"}),
        2 => json!([]),
        _ => json!(values::word(rng, "")),
    };
    if rng.chance(20) {
        mutate::value(rng, &mut value, 1);
    }
    let mut operation = json!({"op": op, "path": rng.pick(&POINTERS), "value": value});
    if rng.chance(30) {
        operation["from"] = json!(rng.pick(&POINTERS));
    }
    operation
}

/// Removes fields, so that a patch has only a part of the object.
fn thin(rng: &mut SeededRng, value: &mut Value, retained: usize) {
    if let Value::Object(map) = value {
        map.retain(|key, _| ["metadata", "name"].contains(&key.as_str()) || rng.chance(retained));
        map.values_mut().for_each(|inner| thin(rng, inner, retained + 15));
    }
}

/// Adds directives of strategic merge patches at valid and invalid positions.
fn directives(rng: &mut SeededRng, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for inner in map.values_mut() {
                directives(rng, inner);
            }
            if rng.chance(15) {
                let fields: Vec<String> = map.keys().cloned().collect();
                let field = rng.pick(&fields);
                let (key, directive) = match rng.below(5) {
                    0 => ("$patch".to_owned(), json!(rng.pick(&["delete", "replace", "merge", "other"]))),
                    1 => ("$retainKeys".to_owned(), json!([field, "other"])),
                    2 => (format!("$setElementOrder/{field}"), json!([{"name": "a"}, "b", 1])),
                    3 => (format!("$deleteFromPrimitiveList/{field}"), json!(["a", 1])),
                    _ => ("$retainKeys".to_owned(), json!(field)),
                };
                map.insert(key, directive);
            }
        }
        Value::Array(list) => {
            list.iter_mut().for_each(|inner| directives(rng, inner));
            if rng.chance(10) {
                list.push(rng.pick(&[
                    json!({"$patch": "replace"}),
                    json!({"$patch": "delete", "name": "a"}),
                    json!({"$patch": 1}),
                    json!(null),
                ]));
            }
        }
        _ => {}
    }
}
