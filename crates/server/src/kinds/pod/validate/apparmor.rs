//! AppArmor profiles: the fields, and the annotations that came before them (KEP-24).

use super::{items, text};
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCALHOST: &str = "localhost/";
const RUNTIME_DEFAULT: &str = "runtime/default";
const UNCONFINED: &str = "unconfined";
const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
/// `PATH_MAX`, less its end.
const LONGEST: usize = 4095;
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The profile of a security context (`ValidateAppArmorProfileField`).
pub(super) fn profile(context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("appArmorProfile");
    let Some(profile) = context.get("appArmorProfile").filter(|p| p.is_object()) else { return };
    let at = path.child("localhostProfile");
    let name = profile.get("localhostProfile").filter(|n| !n.is_null());
    match (text(profile, "type"), name) {
        ("Localhost", name) => {
            let name = name.and_then(Value::as_str).unwrap_or("");
            if name.trim() != name {
                errors.invalid(&at, &json!(name), "must not be padded with whitespace");
            } else if name.is_empty() {
                errors.required(&at, "must be set when AppArmor type is Localhost");
            }
            if name.len() > LONGEST {
                errors.too_long(&at, LONGEST);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            errors.invalid(&at, name, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => errors.required(&path.child("type"), "type is required when appArmorProfile is set"),
        _ => errors.not_supported(&path.child("type"), &profile["type"], &TYPES),
    }
}

/// Annotations with the container that each is about.
fn annotations(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = object["metadata"]["annotations"].as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.strip_prefix(ANNOTATION)?, value.as_str().unwrap_or(""))))
}

fn annotation_path(container: &str) -> FieldPath {
    FieldPath::new("metadata").child("annotations").key(&format!("{ANNOTATION}{container}"))
}

/// An annotation names a container, and a profile in a form that there is (`ValidateAppArmorPodAnnotations`).
pub(super) fn of_annotations(object: &Value, errors: &mut FieldErrors) {
    let names: HashSet<&str> =
        LISTS.iter().flat_map(|list| items(&object["spec"], list)).map(|c| text(c, "name")).collect();
    for (container, profile) in annotations(object) {
        let path = annotation_path(container);
        if !names.contains(container) {
            errors.invalid(&path, &json!(container), "container not found");
        }
        if !matches!(profile, "" | RUNTIME_DEFAULT | UNCONFINED) && !profile.starts_with(LOCALHOST) {
            errors.invalid(&path, &json!(profile), &format!("invalid AppArmor profile name: {profile:?}"));
        }
    }
}

/// Where a container has both, they say the same (`validateAppArmorAnnotationsAndFieldsMatchOnCreate`).
pub(super) fn matching(object: &Value, errors: &mut FieldErrors) {
    let spec = &object["spec"];
    if spec["os"]["name"] == "windows" {
        return;
    }
    let annotated: HashMap<&str, &str> = annotations(object).collect();
    for list in LISTS {
        for (i, c) in items(spec, list).enumerate() {
            let own = &c["securityContext"]["appArmorProfile"];
            let profile = if own.is_null() { &spec["securityContext"]["appArmorProfile"] } else { own };
            let (false, Some(annotation)) = (profile.is_null(), annotated.get(text(c, "name"))) else { continue };
            let path = FieldPath::new("spec").child(list).index(i).child("securityContext").child("appArmorProfile");
            let same_type = match text(profile, "type") {
                "Unconfined" => *annotation == UNCONFINED,
                "RuntimeDefault" => *annotation == RUNTIME_DEFAULT,
                "Localhost" => annotation.starts_with(LOCALHOST),
                _ => true,
            };
            if !same_type {
                errors.forbidden(&path.child("type"), "apparmor type in annotation and field must match");
            } else if annotation.strip_prefix(LOCALHOST).is_some_and(|name| name != text(profile, "localhostProfile")) {
                let why = "apparmor profile in annotation and field must match";
                errors.forbidden(&path.child("localhostProfile"), why);
            }
        }
    }
}

/// What the Pod began with stays (`ValidatePodSpecificAnnotationUpdates`).
pub(super) fn update(object: &Value, old: &Value, errors: &mut FieldErrors) {
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

/// An annotation becomes the field that it stands for (`applyAppArmorVersionSkew`).
pub(in crate::kinds::pod) fn from_annotations(object: &mut Value) {
    if object["spec"]["os"]["name"] == "windows" {
        return;
    }
    let all: Map<String, Value> = annotations(object).map(|(c, p)| (c.to_owned(), json!(p))).collect();
    let of_pod = object["spec"]["securityContext"]["appArmorProfile"].clone();
    let lists = LISTS.map(|list| format!("/spec/{list}"));
    for list in lists {
        for c in object.pointer_mut(&list).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = text(c, "name").to_owned();
            let Some(annotation) = all.get(&name).and_then(Value::as_str) else { continue };
            if !c["securityContext"]["appArmorProfile"].is_null() {
                continue;
            }
            let Some(field) = field(annotation).filter(|field| *field != of_pod) else { continue };
            if !c["securityContext"].is_object() {
                c["securityContext"] = json!({});
            }
            c["securityContext"]["appArmorProfile"] = field;
        }
    }
}

/// The field for an annotation's value; `None` when no field can say the same.
fn field(annotation: &str) -> Option<Value> {
    match annotation {
        UNCONFINED => Some(json!({"type": "Unconfined"})),
        RUNTIME_DEFAULT => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let name = other.strip_prefix(LOCALHOST)?;
            let fits = !name.is_empty() && name.trim() == name && name.len() <= LONGEST;
            fits.then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}
