//! Whether an object says to be of the kind that its request is about, in upstream's words.

use crate::{
    kinds::{ALL, FieldErrors, FieldPath, Kind, KindInfo},
    status::ApiError,
};
use serde_json::{Value, json};

const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// What an object says of itself; nothing is said with an empty text, too.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or("")
}

/// An object that was sent as a whole.
pub(crate) fn check(kind: &dyn Kind, object: &Value) -> Result<(), ApiError> {
    let (info, version, said) = (kind.info(), text(object, "apiVersion"), text(object, "kind"));
    let expected = info.api_version();
    let is_version = version == expected || (version.is_empty() && !kind.is_custom());
    if kind.is_custom() && is_version && said != info.kind {
        return Err(of_another_custom_kind(info, object));
    }
    // A kind of this name may be known in another version, in which it can be converted.
    let is_form = !kind.is_custom() && said == info.kind && known(version, said).is_some();
    if !is_version && (kind.is_custom() || said.is_empty() || is_form) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    let Some(why) = unlike(info, object) else { return Ok(()) };
    let version = version.rsplit('/').next().filter(|v| !v.is_empty()).unwrap_or(info.version);
    let why = format!("{said} in version {version:?} cannot be handled as a {}: {why}", info.kind);
    Err(ApiError::bad_request(why))
}

/// An object that a patch made; `invalid` says what is wrong with it.
pub(crate) fn check_patched(
    kind: &dyn Kind,
    object: &Value,
    invalid: impl Fn(&str) -> ApiError,
) -> Result<(), ApiError> {
    let info = kind.info();
    if kind.is_custom() {
        let is_named = text(object, "apiVersion") == info.api_version() && text(object, "kind") == info.kind;
        return if is_named { Ok(()) } else { Err(of_another_custom_kind(info, object)) };
    }
    unlike(info, object).map_or(Ok(()), |why| Err(invalid(&why)))
}

/// `ValidateCustomResource`: it is called by the name that it gives itself.
fn of_another_custom_kind(info: &KindInfo, object: &Value) -> ApiError {
    let mut errors = FieldErrors::default();
    for (field, expected) in [("kind", info.kind.to_owned()), ("apiVersion", info.api_version())] {
        if text(object, field) != expected {
            errors.invalid(&FieldPath::new(field), &json!(text(object, field)), &format!("must be {expected}"));
        }
    }
    ApiError::invalid_named(info.group, text(object, "kind"), text(&object["metadata"], "name"), &errors)
}

/// Why an object is not one of this built-in kind, nor can be made one (`runtime.Scheme`).
fn unlike(info: &KindInfo, object: &Value) -> Option<String> {
    let or = |said: &str, else_: &str| if said.is_empty() { else_.to_owned() } else { said.to_owned() };
    let version = or(text(object, "apiVersion"), &info.api_version());
    let said = or(text(object, "kind"), info.kind);
    if version == info.api_version() && said == info.kind {
        return None;
    }
    Some(match known(&version, &said) {
        Some(other) => {
            let (short, package) = (other.version, package(info.group));
            format!("converting ({short}.{said}) to ({package}.{}): unknown conversion", info.kind)
        }
        None => format!("no kind {said:?} is registered for version {version:?} in scheme {SCHEME:?}"),
    })
}

/// A built-in kind by its names.
fn known(api_version: &str, kind: &str) -> Option<&'static KindInfo> {
    ALL.iter().map(|known| known.info()).find(|info| info.kind == kind && info.api_version() == api_version)
}

/// Where upstream has the types of a group: `rbac.authorization.k8s.io` is in `rbac`.
fn package(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a ConfigMap.
    #[track_caller]
    fn refused(object: &Value, expected: &str) {
        let kind = ALL.iter().find(|k| k.info().kind == "ConfigMap").expect("a kind");
        let said = check(*kind, object).err().map(|e| e.to_json()["message"].clone());
        assert_eq!(
            said.unwrap_or_default(),
            if expected.is_empty() { Value::Null } else { json!(expected) },
            "{object}"
        );
    }

    #[test]
    fn an_object_of_another_kind_is_refused() {
        refused(&json!({}), "");
        refused(&json!({"apiVersion": "v1"}), "");
        refused(&json!({"apiVersion": "v1", "kind": "ConfigMap"}), "");
        refused(
            &json!({"apiVersion": "v1", "kind": "Secret"}),
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        );
        refused(
            &json!({"apiVersion": "batch/v1", "kind": "Job"}),
            "Job in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Job) to (core.ConfigMap): unknown conversion",
        );
        refused(
            &json!({"apiVersion": "v7", "kind": "ConfigMap"}),
            "ConfigMap in version \"v7\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v7\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        );
        refused(
            &json!({"apiVersion": "foo/v1", "kind": "Bar"}),
            "Bar in version \"v1\" cannot be handled as a ConfigMap: no kind \"Bar\" is registered for version \"foo/v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        );
    }
}
