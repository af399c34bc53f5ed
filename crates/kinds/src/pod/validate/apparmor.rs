//! Validation of AppArmor profiles in fields and in deprecated annotations (KEP-24).

use super::{items, text};
use crate::{FieldErrors, FieldPath, enums, field_cursor::FieldCursor};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

const ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCALHOST_PREFIX: &str = "localhost/";
const RUNTIME_DEFAULT: &str = "runtime/default";
const UNCONFINED: &str = "unconfined";
/// Maximum length of a localhost profile's name: `PATH_MAX` without the final NUL.
const MAX_PROFILE_NAME_LENGTH: usize = 4095;
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Validates the AppArmor profile of a security context (`ValidateAppArmorProfileField`).
pub(super) fn validate_profile(context: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let profile = context.at("appArmorProfile");
    if profile.is_null() {
        return;
    }
    let (profile_type, name) = (profile.at("type"), profile.at("localhostProfile"));
    match profile_type.text() {
        "Localhost" => {
            let text = name.text();
            if text.trim() != text {
                name.invalid("must not be padded with whitespace", errors);
            } else if text.is_empty() {
                name.required("must be set when AppArmor type is Localhost", errors);
            }
            if text.len() > MAX_PROFILE_NAME_LENGTH {
                name.too_long(MAX_PROFILE_NAME_LENGTH, errors);
            }
        }
        "RuntimeDefault" | "Unconfined" if name.is_set() => {
            name.invalid("can only be set when AppArmor type is Localhost", errors);
        }
        "" => profile_type.required("type is required when appArmorProfile is set", errors),
        _ => profile_type.supported(enums::APPARMOR_PROFILE_TYPES, errors),
    }
}

/// Returns the container name and the profile of each AppArmor annotation.
fn annotations(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = object["metadata"]["annotations"].as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.strip_prefix(ANNOTATION_PREFIX)?, value.as_str().unwrap_or(""))))
}

fn annotation_path(container: &str) -> FieldPath {
    FieldPath::new("metadata").child("annotations").key(&format!("{ANNOTATION_PREFIX}{container}"))
}

/// Validates the AppArmor annotations (`ValidateAppArmorPodAnnotations`).
pub(super) fn validate_annotations(object: &Value, errors: &mut FieldErrors) {
    let names: HashSet<&str> =
        CONTAINER_LISTS.iter().flat_map(|list| items(&object["spec"], list)).map(|c| text(c, "name")).collect();
    for (container, profile) in annotations(object) {
        let path = annotation_path(container);
        if !names.contains(container) {
            errors.invalid(&path, &json!(container), "container not found");
        }
        if !matches!(profile, "" | RUNTIME_DEFAULT | UNCONFINED) && !profile.starts_with(LOCALHOST_PREFIX) {
            errors.invalid(&path, &json!(profile), &format!("invalid AppArmor profile name: {profile:?}"));
        }
    }
}

/// Validates that annotations and fields match (`validateAppArmorAnnotationsAndFieldsMatchOnCreate`).
pub(super) fn validate_annotations_match_fields(object: &Value, errors: &mut FieldErrors) {
    let object_cursor = FieldCursor::object(object);
    let spec = object_cursor.at("spec");
    if spec.at("os").at("name").text() == "windows" {
        return;
    }
    let annotated: HashMap<&str, &str> = annotations(object).collect();
    let pod_profile = spec.at("securityContext").at("appArmorProfile").value();
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            let context = container.at("securityContext");
            let own = context.at("appArmorProfile");
            // Like upstream, an error of the Pod's profile has the path of the container's.
            let profile = if own.is_null() { own.with_value(pod_profile) } else { own };
            let annotation = annotated.get(container.at("name").text());
            let (false, Some(annotation)) = (profile.is_null(), annotation) else { continue };
            let (profile_type, name) = (profile.at("type"), profile.at("localhostProfile"));
            let same_type = match profile_type.text() {
                "Unconfined" => *annotation == UNCONFINED,
                "RuntimeDefault" => *annotation == RUNTIME_DEFAULT,
                "Localhost" => annotation.starts_with(LOCALHOST_PREFIX),
                _ => true,
            };
            if !same_type {
                profile_type.forbidden("apparmor type in annotation and field must match", errors);
            } else if annotation.strip_prefix(LOCALHOST_PREFIX).is_some_and(|profile| profile != name.text()) {
                name.forbidden("apparmor profile in annotation and field must match", errors);
            }
        }
    }
}

/// Validates that the AppArmor annotations do not change (`ValidatePodSpecificAnnotationUpdates`).
pub(super) fn validate_annotation_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (known, now): (HashMap<&str, &str>, HashMap<&str, &str>) =
        (annotations(old).collect(), annotations(object).collect());
    for (container, before) in annotations(old) {
        if now.get(container) != Some(&before) {
            errors.forbidden(&annotation_path(container), "may not remove or update AppArmor annotations");
        }
    }
    for (container, _) in annotations(object) {
        if !known.contains_key(container) {
            errors.forbidden(&annotation_path(container), "may not add AppArmor annotations");
        }
    }
}

/// Sets the AppArmor fields from the annotations (`applyAppArmorVersionSkew`).
pub(in crate::pod) fn set_fields_from_annotations(object: &mut Value) {
    if object["spec"]["os"]["name"] == "windows" {
        return;
    }
    let all: Map<String, Value> = annotations(object).map(|(c, p)| (c.to_owned(), json!(p))).collect();
    let pod_profile = object["spec"]["securityContext"]["appArmorProfile"].clone();
    let lists = CONTAINER_LISTS.map(|list| format!("/spec/{list}"));
    for list in lists {
        for c in object.pointer_mut(&list).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = text(c, "name").to_owned();
            let Some(annotation) = all.get(&name).and_then(Value::as_str) else { continue };
            if !c["securityContext"]["appArmorProfile"].is_null() {
                continue;
            }
            let Some(field) = profile_from_annotation(annotation).filter(|field| *field != pod_profile) else {
                continue;
            };
            if !c["securityContext"].is_object() {
                c["securityContext"] = json!({});
            }
            c["securityContext"]["appArmorProfile"] = field;
        }
    }
}

/// Returns the profile field for an annotation's value; `None` for an invalid value.
fn profile_from_annotation(annotation: &str) -> Option<Value> {
    match annotation {
        UNCONFINED => Some(json!({"type": "Unconfined"})),
        RUNTIME_DEFAULT => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let name = other.strip_prefix(LOCALHOST_PREFIX)?;
            let is_valid = !name.is_empty() && name.trim() == name && name.len() <= MAX_PROFILE_NAME_LENGTH;
            is_valid.then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}
