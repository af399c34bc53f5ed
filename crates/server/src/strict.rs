//! Decoding a body as its kind: unknown fields are found, and types are checked, by the kind's own type.

use crate::{kinds::KindInfo, request::Query, service::Call, status::ApiError};
use k8s_openapi::api::{coordination::v1::Lease, core::v1, events::v1::Event as EventsEvent};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// What to do with fields that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Validation {
    Ignore,
    Warn,
    Strict,
}

fn validation(query: &Query) -> Result<Validation, ApiError> {
    match query.get("fieldValidation") {
        None | Some("Warn") => Ok(Validation::Warn),
        Some("Ignore") => Ok(Validation::Ignore),
        Some("Strict") => Ok(Validation::Strict),
        Some(other) => Err(ApiError::new(
            422,
            "Invalid",
            format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            ),
        )),
    }
}

/// The body of a request as an object, YAML or JSON.
pub(crate) fn parse(call: &Call) -> Result<Value, ApiError> {
    let error = |e: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type Object): {e}"))
    };
    match call.content_type.as_str() {
        "" | "application/json" => serde_json::from_slice(&call.body).map_err(|e| error(&e)),
        "application/yaml" => {
            let text = std::str::from_utf8(&call.body).map_err(|e| error(&e))?;
            serde_saphyr::from_str(text).map_err(|e| error(&e))
        }
        other => Err(ApiError::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf (not {other})"
            ),
        )),
    }
}

/// The object with nothing in it that its kind does not have, and warnings for what was left out.
pub(crate) fn check(info: &KindInfo, object: &Value, query: &Query) -> Result<(Value, Vec<String>), ApiError> {
    for (field, expected) in [("apiVersion", info.api_version()), ("kind", info.kind.to_owned())] {
        if object.get(field).and_then(Value::as_str).is_some_and(|v| v != expected) {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                object["apiVersion"].as_str().unwrap_or(""),
                info.api_version()
            )));
        }
    }
    let validation = validation(query)?;
    let (mut clean, unknown) = typed(info, object)?;
    clean["apiVersion"] = info.api_version().into();
    clean["kind"] = info.kind.into();
    match validation {
        Validation::Strict if !unknown.is_empty() => {
            Err(ApiError::bad_request(format!("strict decoding error: {}", unknown.join(", "))))
        }
        Validation::Warn => Ok((clean, unknown)),
        _ => Ok((clean, Vec::new())),
    }
}

fn typed(info: &KindInfo, object: &Value) -> Result<(Value, Vec<String>), ApiError> {
    match (info.group, info.kind) {
        ("", "ConfigMap") => round_trip::<v1::ConfigMap>(info, object),
        ("", "Event") => round_trip::<v1::Event>(info, object),
        ("events.k8s.io", "Event") => round_trip::<EventsEvent>(info, object),
        ("", "Namespace") => round_trip::<v1::Namespace>(info, object),
        ("", "Node") => round_trip::<v1::Node>(info, object),
        ("", "Pod") => round_trip::<v1::Pod>(info, object),
        ("", "Secret") => round_trip::<v1::Secret>(info, object),
        ("", "ServiceAccount") => round_trip::<v1::ServiceAccount>(info, object),
        ("coordination.k8s.io", "Lease") => round_trip::<Lease>(info, object),
        _ => Ok((object.clone(), Vec::new())),
    }
}

fn round_trip<T: DeserializeOwned + Serialize>(
    info: &KindInfo,
    object: &Value,
) -> Result<(Value, Vec<String>), ApiError> {
    let mut object = object.clone();
    // The type checks these; what is left out is what the path of the request says.
    object["apiVersion"] = info.api_version().into();
    object["kind"] = info.kind.into();
    let error = |e: serde_json::Error| {
        ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {e}",
            info.kind, info.version, info.kind
        ))
    };
    let typed: T = T::deserialize(&object).map_err(error)?;
    let clean = serde_json::to_value(&typed).map_err(error)?;
    let mut unknown = Vec::new();
    compare(&object, &clean, &mut String::new(), &mut unknown);
    Ok((clean, unknown))
}

/// Fields of `given` that `clean` has not.
fn compare(given: &Value, clean: &Value, path: &mut String, unknown: &mut Vec<String>) {
    let at = path.len();
    match (given, clean) {
        (Value::Object(given), Value::Object(clean)) => {
            for (key, value) in given.iter().filter(|(_, v)| !v.is_null()) {
                if at > 0 {
                    path.push('.');
                }
                path.push_str(key);
                match clean.get(key) {
                    Some(inner) => compare(value, inner, path, unknown),
                    None => unknown.push(format!("unknown field {path:?}")),
                }
                path.truncate(at);
            }
        }
        (Value::Array(given), Value::Array(clean)) => {
            for (i, (value, inner)) in given.iter().zip(clean).enumerate() {
                path.push_str(&format!("[{i}]"));
                compare(value, inner, path, unknown);
                path.truncate(at);
            }
        }
        _ => {}
    }
}
