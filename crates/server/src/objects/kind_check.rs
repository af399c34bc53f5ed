//! Validation of an object's `apiVersion` and `kind` against the request's resource, with upstream's messages.

use errors::{ApiError, GroupKind};
use kinds::{ALL, FieldErrors, FieldPath, Kind, KindInfo};
use serde_json::{Value, json};

const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// A string field, or an empty string.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or("")
}

/// Validates an object of a create or update.
pub(crate) fn check(kind: &dyn Kind, object: &Value) -> Result<(), ApiError> {
    let (info, version, output) = (kind.info(), text(object, "apiVersion"), text(object, "kind"));
    let expected = info.api_version();
    let is_version = version == expected || (version.is_empty() && !kind.is_custom());
    if kind.is_custom() && is_version && output != info.kind {
        return Err(custom_kind_mismatch(info, object));
    }
    // A kind of this name may exist in another version, from which it can be converted.
    let is_form = !kind.is_custom() && output == info.kind && find_built_in(version, output).is_some();
    if !is_version && (kind.is_custom() || output.is_empty() || is_form) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    let Some(message) = scheme_error(info, object) else { return Ok(()) };
    let version = version.rsplit('/').next().filter(|v| !v.is_empty()).unwrap_or(info.version);
    let message = format!("{output} in version {version:?} cannot be handled as a {}: {message}", info.kind);
    Err(ApiError::bad_request(message))
}

/// Validates a patched object; `invalid` builds the error.
pub(crate) fn check_patched(
    kind: &dyn Kind,
    object: &Value,
    invalid: impl Fn(&str) -> ApiError,
) -> Result<(), ApiError> {
    let info = kind.info();
    if kind.is_custom() {
        let is_named = text(object, "apiVersion") == info.api_version() && text(object, "kind") == info.kind;
        return if is_named { Ok(()) } else { Err(custom_kind_mismatch(info, object)) };
    }
    scheme_error(info, object).map_or(Ok(()), |message| Err(invalid(&message)))
}

/// `ValidateCustomResource`: the error has the name and kind of the sent object.
fn custom_kind_mismatch(info: &KindInfo, object: &Value) -> ApiError {
    let mut errors = FieldErrors::default();
    for (field, expected) in [("kind", info.kind.to_owned()), ("apiVersion", info.api_version())] {
        if text(object, field) != expected {
            errors.invalid(&FieldPath::new(field), &json!(text(object, field)), &format!("must be {expected}"));
        }
    }
    ApiError::invalid(GroupKind::new(info.group, text(object, "kind")), text(&object["metadata"], "name"), &errors)
}

/// Returns why an object is not of this built-in kind and cannot be converted to it (`runtime.Scheme`).
fn scheme_error(info: &KindInfo, object: &Value) -> Option<String> {
    let or = |output: &str, else_: &str| if output.is_empty() { else_.to_owned() } else { output.to_owned() };
    let version = or(text(object, "apiVersion"), &info.api_version());
    let output = or(text(object, "kind"), info.kind);
    if version == info.api_version() && output == info.kind {
        return None;
    }
    Some(match find_built_in(&version, &output) {
        Some(other) => {
            let (short, package) = (other.version, package(info.group));
            format!("converting ({short}.{output}) to ({package}.{}): unknown conversion", info.kind)
        }
        None => format!("no kind {output:?} is registered for version {version:?} in scheme {SCHEME:?}"),
    })
}

/// Finds a built-in kind by API version and kind.
fn find_built_in(api_version: &str, kind: &str) -> Option<&'static KindInfo> {
    ALL.iter().map(|kind| kind.info()).find(|info| info.kind == kind && info.api_version() == api_version)
}

/// Upstream's package of a group's types: `rbac.authorization.k8s.io` is in `rbac`.
fn package(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the error of an object that is sent as a ConfigMap.
    #[track_caller]
    fn check_rejected(object: &Value, expected: &str) {
        let kind = ALL.iter().find(|k| k.info().kind == "ConfigMap").expect("a kind");
        let output = check(*kind, object).err().map(|e| e.to_json()["message"].clone());
        assert_eq!(
            output.unwrap_or_default(),
            if expected.is_empty() { Value::Null } else { json!(expected) },
            "{object}"
        );
    }

    #[test]
    fn object_of_another_kind_is_rejected() {
        check_rejected(&json!({}), "");
        check_rejected(&json!({"apiVersion": "v1"}), "");
        check_rejected(&json!({"apiVersion": "v1", "kind": "ConfigMap"}), "");
        check_rejected(
            &json!({"apiVersion": "v1", "kind": "Secret"}),
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        );
        check_rejected(
            &json!({"apiVersion": "batch/v1", "kind": "Job"}),
            "Job in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Job) to (core.ConfigMap): unknown conversion",
        );
        check_rejected(
            &json!({"apiVersion": "v7", "kind": "ConfigMap"}),
            "ConfigMap in version \"v7\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v7\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        );
        check_rejected(
            &json!({"apiVersion": "foo/v1", "kind": "Bar"}),
            "Bar in version \"v1\" cannot be handled as a ConfigMap: no kind \"Bar\" is registered for version \"foo/v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        );
    }
}
