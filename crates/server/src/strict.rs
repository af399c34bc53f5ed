//! Decoding an object as its kind: unknown fields are found, and types are checked, by the kind's own type.

use crate::{
    decode::Parsed,
    kinds::{FieldErrors, FieldPath, KindInfo},
    quantities,
    request::Query,
    status::ApiError,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1, events::v1::Event as EventsEvent, node::v1::RuntimeClass};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// What to do with fields that do not exist, or stand twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validation {
    Ignore,
    Warn,
    Strict,
}

impl Validation {
    /// What the query asks for; `options` is for example `CreateOptions`.
    pub(crate) fn parse(query: &Query, options: &str) -> Result<Self, ApiError> {
        match query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => {
                let mut errors = FieldErrors::default();
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.not_supported(&FieldPath::new("fieldValidation"), &json!(other), &supported);
                Err(ApiError::invalid_options(options, &errors))
            }
        }
    }
}

/// The object of a create or an update, with nothing in it that its kind does not have; and warnings for what was left out.
pub(crate) fn check(
    info: &KindInfo,
    parsed: &Parsed,
    validation: Validation,
) -> Result<(Value, Vec<String>), ApiError> {
    let handled = |why: &str| {
        let kind = parsed.value["kind"].as_str().filter(|k| !k.is_empty()).unwrap_or(info.kind);
        ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: {why}",
            info.version, info.kind
        ))
    };
    named_as_expected(info, &parsed.value)?;
    let (clean, unknown) = typed(info, &parsed.value).map_err(|e| handled(&e))?;
    let wrong: Vec<String> = unknown.into_iter().chain(parsed.duplicates.iter().cloned()).collect();
    match validation {
        Validation::Strict if !wrong.is_empty() => {
            Err(handled(&format!("strict decoding error: {}", wrong.join(", "))))
        }
        Validation::Warn => Ok((clean, wrong)),
        _ => Ok((clean, Vec::new())),
    }
}

/// What a patch made of an object; upstream finds fault with these as an invalid `patch`, of which `shown` is shown.
pub(crate) fn check_patched(
    info: &KindInfo,
    parsed: &Parsed,
    shown: Option<&str>,
    validation: Validation,
) -> Result<(Value, Vec<String>), ApiError> {
    let invalid = |why: &str| {
        let mut errors = FieldErrors::default();
        let shown = shown.map_or_else(|| parsed.value.to_string(), str::to_owned);
        errors.invalid(&FieldPath::new("patch"), &json!(shown), why);
        ApiError::invalid_named("", "", "", &errors)
    };
    if !parsed.value.is_object() {
        return Err(invalid("the result of the patch is no object"));
    }
    named_as_expected(info, &parsed.value)?;
    let (clean, unknown) = typed(info, &parsed.value).map_err(|e| invalid(&e))?;
    let wrong: Vec<String> = parsed.duplicates.iter().cloned().chain(unknown).collect();
    match validation {
        Validation::Strict if !wrong.is_empty() => {
            Err(invalid(&format!("strict decoding error: {}", wrong.join(", "))))
        }
        Validation::Warn => Ok((clean, wrong)),
        _ => Ok((clean, Vec::new())),
    }
}

fn named_as_expected(info: &KindInfo, object: &Value) -> Result<(), ApiError> {
    let text = |field: &str| object[field].as_str().filter(|v| !v.is_empty());
    let (version, expected) = (text("apiVersion").unwrap_or(""), info.api_version());
    if !version.is_empty() && version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    match text("kind") {
        Some(kind) if kind != info.kind => Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: it is of another kind",
            info.version, info.kind
        ))),
        _ => Ok(()),
    }
}

type Typed = Result<(Value, Vec<String>), String>;

fn typed(info: &KindInfo, object: &Value) -> Typed {
    let round_trip = match (info.group, info.kind) {
        ("", "ConfigMap") => round_trip::<v1::ConfigMap>,
        ("", "Event") => round_trip::<v1::Event>,
        ("events.k8s.io", "Event") => round_trip::<EventsEvent>,
        ("", "Namespace") => round_trip::<v1::Namespace>,
        ("", "Node") => round_trip::<v1::Node>,
        ("", "Pod") => round_trip::<v1::Pod>,
        ("", "Secret") => round_trip::<v1::Secret>,
        ("", "Service") => round_trip::<v1::Service>,
        ("", "ServiceAccount") => round_trip::<v1::ServiceAccount>,
        ("coordination.k8s.io", "Lease") => round_trip::<Lease>,
        ("node.k8s.io", "RuntimeClass") => round_trip::<RuntimeClass>,
        _ => |object: &Value| Ok((object.clone(), Vec::new())),
    };
    let mut object = object.clone();
    // The type checks these; what is left out is what the path of the request says.
    object["apiVersion"] = info.api_version().into();
    object["kind"] = info.kind.into();
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    quantities::canonicalize(info.kind, &mut object)?;
    let (mut clean, unknown) = round_trip(&object)?;
    clean["apiVersion"] = info.api_version().into();
    clean["kind"] = info.kind.into();
    tidy(&mut clean);
    Ok((clean, unknown))
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Typed {
    // Only what is wrong pays for the path to it.
    let typed = T::deserialize(object).or_else(|_| {
        serde_path_to_error::deserialize::<_, T>(object).map_err(|e| format!("{}: {}", e.path(), e.inner()))
    })?;
    let clean = serde_json::to_value(&typed).map_err(|e| e.to_string())?;
    let mut unknown = Vec::new();
    compare(object, &clean, &mut String::new(), &mut unknown);
    Ok((clean, unknown))
}

/// Removes what upstream's types leave out when they are encoded: empty lists, empty labels and annotations.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, inner| match inner {
                Value::Array(items) => !items.is_empty() || key == "containers",
                Value::Object(fields) => !fields.is_empty() || !matches!(key.as_str(), "labels" | "annotations"),
                _ => true,
            });
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
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
