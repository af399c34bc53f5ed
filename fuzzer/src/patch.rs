//! Patches of all four types.

use crate::{dice::Dice, mutate, words};
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

/// The body of a patch of this type; `object` is what it could be about.
pub(crate) fn of(dice: &mut Dice, media: &str, object: &Value) -> Value {
    match media {
        "application/json-patch+json" => {
            let operations = if dice.chance(2) { 11_000 } else { dice.below(5) };
            (0..operations).map(|_| operation(dice, object)).collect()
        }
        "application/apply-patch+yaml" => {
            let mut applied = object.clone();
            thin(dice, &mut applied, 70);
            applied["apiVersion"] = object["apiVersion"].clone();
            applied["kind"] = object["kind"].clone();
            applied
        }
        strategic => {
            let mut patch = object.clone();
            thin(dice, &mut patch, 40);
            if strategic.contains("strategic") && dice.chance(60) {
                directives(dice, &mut patch);
            }
            if dice.chance(30) {
                patch["metadata"]["labels"] = json!({"a": words::word(dice, "")});
            }
            patch
        }
    }
}

fn operation(dice: &mut Dice, object: &Value) -> Value {
    let op = dice.pick(&["add", "replace", "remove", "test", "move", "copy", "add", "replace", "nothing"]);
    let mut value = match dice.below(4) {
        0 => object.clone(),
        1 => json!({"a": "b"}),
        2 => json!([]),
        _ => json!(words::word(dice, "")),
    };
    if dice.chance(20) {
        mutate::value(dice, &mut value, 1);
    }
    let mut operation = json!({"op": op, "path": dice.pick(&POINTERS), "value": value});
    if dice.chance(30) {
        operation["from"] = json!(dice.pick(&POINTERS));
    }
    operation
}

/// Leaves out what is not kept, so that a patch says less than the whole.
fn thin(dice: &mut Dice, value: &mut Value, kept: usize) {
    if let Value::Object(map) = value {
        map.retain(|key, _| ["metadata", "name"].contains(&key.as_str()) || dice.chance(kept));
        map.values_mut().for_each(|inner| thin(dice, inner, kept + 15));
    }
}

/// Directives of strategic merge patches, in good places and bad ones.
fn directives(dice: &mut Dice, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for inner in map.values_mut() {
                directives(dice, inner);
            }
            if dice.chance(15) {
                let fields: Vec<String> = map.keys().cloned().collect();
                let field = dice.pick(&fields);
                let (key, directive) = match dice.below(5) {
                    0 => ("$patch".to_owned(), json!(dice.pick(&["delete", "replace", "merge", "other"]))),
                    1 => ("$retainKeys".to_owned(), json!([field, "other"])),
                    2 => (format!("$setElementOrder/{field}"), json!([{"name": "a"}, "b", 1])),
                    3 => (format!("$deleteFromPrimitiveList/{field}"), json!(["a", 1])),
                    _ => ("$retainKeys".to_owned(), json!(field)),
                };
                map.insert(key, directive);
            }
        }
        Value::Array(list) => {
            list.iter_mut().for_each(|inner| directives(dice, inner));
            if dice.chance(10) {
                list.push(dice.pick(&[
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
