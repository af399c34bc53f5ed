//! ConversionReview: requests, and validation of responses (`webhook_converter.go`).

use kinds::object_meta;
use serde_json::{Map, Value, json};

/// Invalid or failed response to a ConversionReview, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("expected webhook response of {expected}, got {got}")]
    Kind { expected: String, got: String },
    #[error("no response provided")]
    NoResponse,
    #[error("expected response.uid={expected:?}, got {got:?}")]
    Uid { expected: String, got: String },
    #[error("response.result.status was '{0}', not 'Success'")]
    Status(String),
    /// The webhook reports a failure with this message.
    #[error("{0}")]
    Failed(String),
}

/// Invalid converted object, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConvertedObjectError {
    #[error("invalid groupVersion (expected {expected}, received {received})")]
    GroupVersion { expected: String, received: String },
    #[error("invalid kind (expected {expected}, received {received})")]
    Kind { expected: String, received: String },
    #[error("must have the same {field}: {expected} != {got}")]
    Identity { field: &'static str, expected: String, got: String },
    #[error("missing metadata in converted object: {0}")]
    NoMetadata(Value),
    #[error("metadata.{0} is no map")]
    NotAMap(&'static str),
    #[error("metadata.{field}[{key}] is no string")]
    NotAString { field: &'static str, key: String },
    /// Invalid labels or annotations.
    #[error("{0}")]
    Metadata(String),
}

/// Builds a ConversionReview request.
pub(super) fn request(version: &str, uid: &str, desired_version: &str, objects: &[&mut Value]) -> Value {
    let objects: Vec<&Value> = objects.iter().map(|o| &**o).collect();
    json!({
        "apiVersion": format!("apiextensions.k8s.io/{version}"), "kind": "ConversionReview",
        "request": {"uid": uid, "desiredAPIVersion": desired_version, "objects": objects},
    })
}

/// Go's text of an object's `GroupVersionKind`.
pub(super) fn gvk(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or("").to_owned();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

/// Returns the converted objects of a response.
pub(super) fn objects(version: &str, uid: &str, mut review: Value) -> Result<Vec<Value>, ReviewError> {
    let (got, expected) = (gvk(&review), format!("apiextensions.k8s.io/{version}, Kind=ConversionReview"));
    if version == "v1" && got != expected {
        return Err(ReviewError::Kind { expected, got });
    }
    let response = review["response"].take();
    if response.is_null() {
        return Err(ReviewError::NoResponse);
    }
    let response_uid = response["uid"].as_str().unwrap_or("");
    if version == "v1" && response_uid != uid {
        return Err(ReviewError::Uid { expected: uid.to_owned(), got: response_uid.to_owned() });
    }
    let status = response["result"]["status"].as_str().unwrap_or("");
    if status != "Success" {
        return Err(match response["result"]["message"].as_str().unwrap_or("") {
            "" => ReviewError::Status(status.to_owned()),
            message => ReviewError::Failed(message.to_owned()),
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

/// Validates a converted object and restores its metadata, of which only labels and annotations may change
/// (`validateConvertedObject`, `restoreObjectMeta`).
pub(super) fn check(
    original: &Value,
    converted: &mut Value,
    desired_version: &str,
) -> Result<(), ConvertedObjectError> {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or("").to_owned();
    let version = text(converted, "apiVersion");
    if version != desired_version {
        return Err(ConvertedObjectError::GroupVersion { expected: desired_version.to_owned(), received: version });
    }
    let (kind, other) = (text(original, "kind"), text(converted, "kind"));
    if kind != other {
        return Err(ConvertedObjectError::Kind { expected: kind, received: other });
    }
    for (field, field_name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, got) = (text(&original["metadata"], field), text(&converted["metadata"], field));
        if expected != got {
            return Err(ConvertedObjectError::Identity { field: field_name, expected, got });
        }
    }
    if !converted["metadata"].is_object() {
        return Err(ConvertedObjectError::NoMetadata(converted["metadata"].take()));
    }
    let mut metadata = original["metadata"].clone();
    for field in ["labels", "annotations"] {
        validate_strings(&converted["metadata"][field], field)?;
        match (metadata.as_object_mut(), converted["metadata"][field].take()) {
            (Some(fields), Value::Null) => drop(fields.remove(field)),
            (Some(fields), value) => drop(fields.insert(field.to_owned(), value)),
            _ => {}
        }
    }
    if let Some(message) = object_meta::first_error(&metadata) {
        return Err(ConvertedObjectError::Metadata(message));
    }
    converted["metadata"] = metadata;
    Ok(())
}

/// Validates that all values are strings.
fn validate_strings(value: &Value, field: &'static str) -> Result<(), ConvertedObjectError> {
    let empty = Map::new();
    let all = match value {
        Value::Null => &empty,
        Value::Object(all) => all,
        _ => return Err(ConvertedObjectError::NotAMap(field)),
    };
    match all.iter().find(|(_, v)| !v.is_string()) {
        Some((key, _)) => Err(ConvertedObjectError::NotAString { field, key: key.clone() }),
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
    fn response_must_match_request() {
        let review = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        let check = |answer: Value, expected: Result<usize, &str>| {
            let got = objects("v1", "u", answer).map(|o| o.len());
            assert_eq!(got.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
        };
        let success = json!({"status": "Success"});
        check(review(json!({"uid": "u", "result": success, "convertedObjects": [{}, {}]})), Ok(2));
        check(review(json!({"uid": "u", "result": success})), Ok(0));
        check(review(json!({"uid": "x", "result": success})), Err("expected response.uid=\"u\", got \"x\""));
        check(review(Value::Null), Err("no response provided"));
        check(review(json!({"uid": "u", "result": {"status": "Failed", "message": "no"}})), Err("no"));
        check(review(json!({"uid": "u"})), Err("response.result.status was '', not 'Success'"));
        let old = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1beta1, Kind=ConversionReview";
        check(json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "ConversionReview"}), Err(old));
    }

    #[test]
    fn only_labels_and_annotations_may_be_converted() {
        let mut converted = object("v2");
        converted["metadata"]["labels"] = json!({"c": "d"});
        converted["metadata"]["annotations"] = json!({"e": "f"});
        converted["metadata"]["finalizers"] = json!([]);
        check(&object("v1"), &mut converted, "g/v2").unwrap();
        assert_eq!(converted["metadata"]["labels"], json!({"c": "d"}));
        assert_eq!(converted["metadata"]["annotations"], json!({"e": "f"}));
        assert_eq!(converted["metadata"]["finalizers"], json!(["f/g"]));
        let refused = |change: &dyn Fn(&mut Value), expected: &str| {
            let mut converted = object("v2");
            change(&mut converted);
            assert_eq!(check(&object("v1"), &mut converted, "g/v2").unwrap_err().to_string(), expected);
        };
        refused(&|o| o["apiVersion"] = json!("g/v1"), "invalid groupVersion (expected g/v2, received g/v1)");
        refused(&|o| o["kind"] = json!("L"), "invalid kind (expected K, received L)");
        refused(&|o| o["metadata"]["name"] = json!("b"), "must have the same name: a != b");
        refused(&|o| o["metadata"]["uid"] = Value::Null, "must have the same UID: u != ");
        refused(&|o| o["metadata"]["labels"] = json!({"a": 1}), "metadata.labels[a] is no string");
    }
}
