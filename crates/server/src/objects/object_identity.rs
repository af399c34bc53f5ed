//! Validation of the identity of a sent object: its name, namespace, UID and `resourceVersion`.

use crate::objects::request_scope::RequestScope;
use errors::{ApiError, GroupKind};
use kinds::{FieldErrors, FieldPath, KindInfo};
use serde_json::{Value, json};

/// Requires the object's name to be set and to match the URL.
pub(crate) fn check_named(resource: &RequestScope, new: &Value) -> Result<(), ApiError> {
    let name = resource.name.as_deref().unwrap_or("");
    if new["metadata"]["name"].as_str().unwrap_or("").is_empty() {
        let message = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
        return Err(ApiError::bad_request(message));
    }
    check_name(resource, new)
}

/// Requires the object's name to match the URL.
pub(crate) fn check_name(resource: &RequestScope, new: &Value) -> Result<(), ApiError> {
    let (name, given) = (resource.name.as_deref().unwrap_or(""), new["metadata"]["name"].as_str().unwrap_or(""));
    if given == name {
        return Ok(());
    }
    let message = format!("the name of the object ({given}) does not match the name on the URL ({name})");
    Err(ApiError::bad_request(message))
}

/// Requires the identity of the sent object to match the URL and the stored object. In an update (PUT), the UID is a
/// precondition.
pub(crate) fn check(resource: &RequestScope, is_precondition: bool, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    let text = |field: &str| new["metadata"][field].as_str().unwrap_or("");
    check_name(resource, new)?;
    if info.namespaced && !text("namespace").is_empty() && text("namespace") != resource.namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({}) does not match the namespace on the request ({})",
            text("namespace"),
            resource.namespace
        )));
    }
    check_uid(resource, is_precondition, new, old)?;
    let Some(version) = requested_version(new).filter(|version| old["metadata"]["resourceVersion"] != *version) else {
        return Ok(());
    };
    if parse_revision(version).is_none() {
        let mut errors = FieldErrors::default();
        let path = FieldPath::new("metadata").child("resourceVersion");
        let message = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
        errors.invalid(&path, &json!(version), &message);
        return Err(ApiError::invalid(info, name, &errors));
    }
    Err(ApiError::optimistic_lock_conflict(info, name))
}

/// Requires the same UID. It is a precondition of an update, and an immutable field for patches and webhooks.
fn check_uid(resource: &RequestScope, is_precondition: bool, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    let [new_uid, uid] = [new, old].map(|object| object["metadata"]["uid"].as_str().unwrap_or(""));
    if new_uid.is_empty() || new_uid == uid {
        return Ok(());
    }
    if !is_precondition {
        let mut errors = FieldErrors::default();
        let path = FieldPath::new("metadata").child("uid");
        errors.invalid(&path, &json!(new_uid), "field is immutable");
        return Err(ApiError::invalid(info, name, &errors));
    }
    let scope = if info.namespaced { format!("{}/", resource.namespace) } else { String::new() };
    let message = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{scope}{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {new_uid}, UID in object meta: {uid}",
        info.plural,
    );
    Err(ApiError::conflict(info, name, &message))
}

/// Returns the `resourceVersion` of a sent object; `0` and an empty one mean any version.
pub(crate) fn requested_version(object: &Value) -> Option<&str> {
    let version = object["metadata"]["resourceVersion"].as_str()?;
    Some(version).filter(|version| !version.is_empty() && parse_revision(version) != Some(0))
}

/// Whether an object has a `resourceVersion` that is a revision.
pub(crate) fn is_versioned(object: &Value) -> bool {
    requested_version(object).and_then(parse_revision).is_some()
}

/// Parses a revision as Go's `strconv.ParseUint`: without a sign.
fn parse_revision(version: &str) -> Option<u64> {
    version.parse().ok().filter(|_| !version.starts_with('+'))
}

/// Requires a `resourceVersion` in updates of kinds that disallow unconditional updates (`AllowUnconditionalUpdate`).
pub(crate) fn require_version(info: &KindInfo, new: &Value) -> Result<(), ApiError> {
    if !info.requires_resource_version || requested_version(new).is_some() {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    let path = FieldPath::new("metadata").child("resourceVersion");
    errors.invalid(&path, &json!(0), "must be specified for an update");
    let name = new["metadata"]["name"].as_str().unwrap_or("");
    Err(ApiError::invalid(GroupKind::new(info.group, info.plural), name, &errors))
}

pub(crate) fn namespace_mismatch() -> ApiError {
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    ApiError::bad_request(message)
}

/// Sets the namespace of an object that is not stored to the request's, or returns a 400 when it has another.
pub(crate) fn set_request_namespace(resource: &RequestScope, object: &mut Value) -> Result<(), ApiError> {
    let metadata = &mut object["metadata"];
    if metadata.is_null() {
        *metadata = json!({});
    }
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(ApiError::bad_request("metadata must be an object"));
    };
    match metadata.get("namespace").and_then(Value::as_str) {
        Some(given) if !given.is_empty() && given != resource.namespace => return Err(namespace_mismatch()),
        _ if resource.namespace.is_empty() => {}
        _ => drop(metadata.insert("namespace".to_owned(), json!(resource.namespace))),
    }
    Ok(())
}
