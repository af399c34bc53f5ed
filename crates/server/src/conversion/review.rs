//! ConversionReview: what is asked, and what may come back (`webhook_converter.go`).

use serde_json::{Map, Value, json};

/// What a webhook is asked.
pub(super) fn request(version: &str, uid: &str, wanted: &str, objects: &[&mut Value]) -> Value {
    let objects: Vec<&Value> = objects.iter().map(|o| &**o).collect();
    json!({
        "apiVersion": format!("apiextensions.k8s.io/{version}"), "kind": "ConversionReview",
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
    })
}

/// Go's text for what an object is.
pub(super) fn named(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or("").to_owned();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

/// The objects of an answer.
pub(super) fn objects(version: &str, uid: &str, mut answer: Value) -> Result<Vec<Value>, String> {
    let (got, expected) = (named(&answer), format!("apiextensions.k8s.io/{version}, Kind=ConversionReview"));
    if version == "v1" && got != expected {
        return Err(format!("expected webhook response of {expected}, got {got}"));
    }
    let response = answer["response"].take();
    if response.is_null() {
        return Err("no response provided".to_owned());
    }
    let answered = response["uid"].as_str().unwrap_or("");
    if version == "v1" && answered != uid {
        return Err(format!("expected response.uid={uid:?}, got {answered:?}"));
    }
    let status = response["result"]["status"].as_str().unwrap_or("");
    if status != "Success" {
        return Err(match response["result"]["message"].as_str().unwrap_or("") {
            "" => format!("response.result.status was '{status}', not 'Success'"),
            message => message.to_owned(),
        });
    }
    match response {
        Value::Object(mut fields) => match fields.remove("convertedObjects") {
            Some(Value::Array(objects)) => Ok(objects),
            _ => Ok(Vec::new()),
        },
        _ => Ok(Vec::new()),
    }
}

/// A converted object is the same object: it has its metadata, of which labels and annotations alone may be others
/// (`validateConvertedObject`, `restoreObjectMeta`).
pub(super) fn check(before: &Value, made: &mut Value, wanted: &str) -> Result<(), String> {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or("").to_owned();
    let version = text(made, "apiVersion");
    if version != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {version})"));
    }
    let (kind, other) = (text(before, "kind"), text(made, "kind"));
    if kind != other {
        return Err(format!("invalid kind (expected {kind}, received {other})"));
    }
    for (field, what) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, got) = (text(&before["metadata"], field), text(&made["metadata"], field));
        if expected != got {
            return Err(format!("must have the same {what}: {expected} != {got}"));
        }
    }
    if !made["metadata"].is_object() {
        return Err(format!("missing metadata in converted object: {}", made["metadata"]));
    }
    let mut metadata = before["metadata"].clone();
    for field in ["labels", "annotations"] {
        strings(&made["metadata"][field], field)?;
        match (metadata.as_object_mut(), made["metadata"][field].take()) {
            (Some(fields), Value::Null) => drop(fields.remove(field)),
            (Some(fields), value) => drop(fields.insert(field.to_owned(), value)),
            _ => {}
        }
    }
    let checked = |keys: &Value| crate::object_meta::wrong_in(keys);
    if let Some(why) = checked(&metadata) {
        return Err(why);
    }
    made["metadata"] = metadata;
    Ok(())
}

/// Labels and annotations are text.
fn strings(value: &Value, field: &str) -> Result<(), String> {
    let empty = Map::new();
    let all = match value {
        Value::Null => &empty,
        Value::Object(all) => all,
        _ => return Err(format!("metadata.{field} is no map")),
    };
    match all.iter().find(|(_, v)| !v.is_string()) {
        Some((key, _)) => Err(format!("metadata.{field}[{key}] is no string")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str) -> Value {
        json!({"apiVersion": format!("g/{version}"), "kind": "K",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"a": "b"}, "finalizers": ["f/g"]}})
    }

    #[test]
    fn an_answer_is_one_to_what_was_asked() {
        let answer = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        let check = |answer: Value, expected: Result<usize, &str>| {
            let got = objects("v1", "u", answer).map(|o| o.len());
            assert_eq!(got.as_ref().map_err(String::as_str).copied(), expected);
        };
        let success = json!({"status": "Success"});
        check(answer(json!({"uid": "u", "result": success, "convertedObjects": [{}, {}]})), Ok(2));
        check(answer(json!({"uid": "u", "result": success})), Ok(0));
        check(answer(json!({"uid": "x", "result": success})), Err("expected response.uid=\"u\", got \"x\""));
        check(answer(Value::Null), Err("no response provided"));
        check(answer(json!({"uid": "u", "result": {"status": "Failed", "message": "no"}})), Err("no"));
        check(answer(json!({"uid": "u"})), Err("response.result.status was '', not 'Success'"));
        let old = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1beta1, Kind=ConversionReview";
        check(json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "ConversionReview"}), Err(old));
    }

    #[test]
    fn labels_and_annotations_alone_may_be_others() {
        let mut made = object("v2");
        made["metadata"]["labels"] = json!({"c": "d"});
        made["metadata"]["annotations"] = json!({"e": "f"});
        made["metadata"]["finalizers"] = json!([]);
        check(&object("v1"), &mut made, "g/v2").unwrap();
        assert_eq!(made["metadata"]["labels"], json!({"c": "d"}));
        assert_eq!(made["metadata"]["annotations"], json!({"e": "f"}));
        assert_eq!(made["metadata"]["finalizers"], json!(["f/g"]));
        let refused = |change: &dyn Fn(&mut Value), expected: &str| {
            let mut made = object("v2");
            change(&mut made);
            assert_eq!(check(&object("v1"), &mut made, "g/v2").unwrap_err(), expected);
        };
        refused(&|o| o["apiVersion"] = json!("g/v1"), "invalid groupVersion (expected g/v2, received g/v1)");
        refused(&|o| o["kind"] = json!("L"), "invalid kind (expected K, received L)");
        refused(&|o| o["metadata"]["name"] = json!("b"), "must have the same name: a != b");
        refused(&|o| o["metadata"]["uid"] = Value::Null, "must have the same UID: u != ");
        refused(&|o| o["metadata"]["labels"] = json!({"a": 1}), "metadata.labels[a] is no string");
    }
}
