//! Which object a client means, and in which version: its name, its uid and its `resourceVersion`.

use crate::{
    kinds::{FieldErrors, FieldPath, KindInfo},
    request::Resource,
    status::ApiError,
};
use serde_json::{Value, json};

/// The object of an update has a name, and it is that of the path.
pub(crate) fn check_named(resource: &Resource, new: &Value) -> Result<(), ApiError> {
    let name = resource.name.as_deref().unwrap_or("");
    if new["metadata"]["name"].as_str().unwrap_or("").is_empty() {
        let why = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
        return Err(ApiError::bad_request(why));
    }
    check_name(resource, new)
}

/// The object that a client sends is called as the path says.
pub(crate) fn check_name(resource: &Resource, new: &Value) -> Result<(), ApiError> {
    let (name, given) = (resource.name.as_deref().unwrap_or(""), new["metadata"]["name"].as_str().unwrap_or(""));
    if given == name {
        return Ok(());
    }
    let why = format!("the name of the object ({given}) does not match the name on the URL ({name})");
    Err(ApiError::bad_request(why))
}

/// The object that a client sends is the one that the path names, in the version that is there. Of an update (PUT), its uid
/// is a precondition.
pub(crate) fn check(resource: &Resource, is_precondition: bool, new: &Value, old: &Value) -> Result<(), ApiError> {
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
    let Some(version) = named_version(new).filter(|version| old["metadata"]["resourceVersion"] != *version) else {
        return Ok(());
    };
    if number(version).is_none() {
        let mut errors = FieldErrors::default();
        let path = FieldPath::new("metadata").child("resourceVersion");
        let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
        errors.invalid(&path, &json!(version), &why);
        return Err(ApiError::invalid(info, name, &errors));
    }
    Err(ApiError::modified(info, name))
}

/// A uid means that object. An update has it as a precondition; a patch, or a webhook, tries to change it.
fn check_uid(resource: &Resource, is_precondition: bool, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    let [wanted, uid] = [new, old].map(|object| object["metadata"]["uid"].as_str().unwrap_or(""));
    if wanted.is_empty() || wanted == uid {
        return Ok(());
    }
    if !is_precondition {
        let mut errors = FieldErrors::default();
        let path = FieldPath::new("metadata").child("uid");
        errors.invalid(&path, &json!(wanted), "field is immutable");
        return Err(ApiError::invalid(info, name, &errors));
    }
    let scope = if info.namespaced { format!("{}/", resource.namespace) } else { String::new() };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{scope}{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}",
        info.plural,
    );
    Err(ApiError::conflict(info, name, &why))
}

/// Which version a client says that an object is of: `0` is any, as nothing is.
pub(crate) fn named_version(object: &Value) -> Option<&str> {
    let version = object["metadata"]["resourceVersion"].as_str()?;
    Some(version).filter(|version| !version.is_empty() && number(version) != Some(0))
}

/// Whether an object names a version that the store could have given it.
pub(crate) fn is_versioned(object: &Value) -> bool {
    named_version(object).and_then(number).is_some()
}

/// As Go reads one: without a sign.
fn number(version: &str) -> Option<u64> {
    version.parse().ok().filter(|_| !version.starts_with('+'))
}

/// Of some kinds an update must say which version it is of.
pub(crate) fn check_has_version(info: &KindInfo, new: &Value) -> Result<(), ApiError> {
    if !info.needs_version || named_version(new).is_some() {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    let path = FieldPath::new("metadata").child("resourceVersion");
    errors.invalid(&path, &json!(0), "must be specified for an update");
    let name = new["metadata"]["name"].as_str().unwrap_or("");
    Err(ApiError::invalid_named(info.group, info.plural, name, &errors))
}
