//! Validation of `ObjectMeta` (upstream's `apimachinery/pkg/api/validation/objectmeta.go`).

use crate::{FieldErrors, FieldPath, Kind, validate_path_segment_name};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Maximum size of all annotations of an object, in bytes (upstream's `TotalAnnotationSizeLimitB`).
const MAX_ANNOTATIONS: usize = 256 << 10;

/// Validates the metadata of a new or updated object.
pub fn validate(kind: &dyn Kind, value: &Value, errors: &mut FieldErrors) {
    let (path, metadata) = (FieldPath::new("metadata"), &value["metadata"]);
    if let Some(prefix) = metadata["generateName"].as_str().filter(|p| !p.is_empty()) {
        // A suffix is appended to the prefix, so it may end with `-`, unlike a name.
        let name = format!("{}a", prefix.trim_end_matches('-'));
        kind.validate_name(&name)
            .iter()
            .for_each(|e| errors.invalid(&path.child("generateName"), &metadata["generateName"], e));
    }
    match metadata["name"].as_str().unwrap_or("") {
        "" => errors.required(&path.child("name"), "name or generateName is required"),
        name => kind.validate_name(name).iter().for_each(|e| errors.invalid(&path.child("name"), &json!(name), e)),
    }
    if !kind.info().namespaced && metadata["namespace"].as_str().is_some_and(|n| !n.is_empty()) {
        errors.forbidden(&path.child("namespace"), "not allowed on this type");
    }
    labels(&metadata["labels"], &path.child("labels"), errors);
    annotations(&metadata["annotations"], &path.child("annotations"), errors);
    owners(&metadata["ownerReferences"], &path.child("ownerReferences"), errors);
    finalizers(&metadata["finalizers"], &path.child("finalizers"), errors);
    if !is_generic(kind) {
        standard_finalizers(&metadata["finalizers"], &path.child("finalizers"), errors);
    }
}

/// Validates the metadata of an embedded resource, whose kind is unknown and whose name is optional.
pub(crate) fn validate_embedded(metadata: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["generateName", "name"] {
        let name = metadata[field].as_str().unwrap_or("");
        validate_path_segment_name(name).iter().for_each(|e| errors.invalid(&path.child(field), &json!(name), e));
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|namespace| !namespace.is_empty()) {
        let wrong = api::names::dns1123_label(namespace);
        wrong.iter().for_each(|e| errors.invalid(&path.child("namespace"), &json!(namespace), e));
    }
    if metadata["generation"].as_i64().is_some_and(|generation| generation < 0) {
        errors.invalid(&path.child("generation"), &metadata["generation"], "must be greater than or equal to 0");
    }
    labels(&metadata["labels"], &path.child("labels"), errors);
    annotations(&metadata["annotations"], &path.child("annotations"), errors);
    owners(&metadata["ownerReferences"], &path.child("ownerReferences"), errors);
    finalizers(&metadata["finalizers"], &path.child("finalizers"), errors);
}

/// Finalizers whose names have no domain.
const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
/// Groups for which upstream uses the generic validation of `ObjectMeta`, not that of the core group.
const GENERIC: [&str; 4] =
    ["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "coordination.k8s.io"];

fn is_generic(kind: &dyn Kind) -> bool {
    kind.is_custom() || GENERIC.contains(&kind.info().group)
}

fn has_domain(finalizer: &str) -> bool {
    finalizer.contains('/') || STANDARD.contains(&finalizer)
}

/// Upstream's `validateKubeFinalizerName`.
fn standard_finalizers(list: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, finalizer) in list.as_array().into_iter().flatten().enumerate() {
        if !has_domain(finalizer.as_str().unwrap_or("")) {
            let message = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&path.index(i), finalizer, message);
        }
    }
}

/// Validates labels, and maps of the same form, such as a Pod's `nodeSelector`.
pub(crate) fn labels(labels: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (key, v) in labels.as_object().into_iter().flatten() {
        api::names::qualified_name(key).iter().for_each(|e| errors.invalid(path, &json!(key), e));
        api::names::label_value(v.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(path, v, e));
    }
}

/// Validates annotations.
pub(crate) fn annotations(annotations: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        let lower = key.to_lowercase();
        api::names::qualified_name(&lower).iter().for_each(|e| errors.invalid(path, &json!(key), e));
    }
    if size > MAX_ANNOTATIONS {
        errors.too_long(path, MAX_ANNOTATIONS);
    }
}

/// Returns the first error of the labels and annotations of a webhook's converted object.
pub fn first_error(metadata: &Value) -> Option<String> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new("metadata"));
    labels(&metadata["labels"], &path.child("labels"), &mut errors);
    annotations(&metadata["annotations"], &path.child("annotations"), &mut errors);
    errors.0.first().map(ToString::to_string)
}

fn owners(list: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = |v: &Value, field: &str| v[field].as_str().unwrap_or("").to_owned();
    let mut controller: Option<String> = None;
    for owner in list.as_array().into_iter().flatten() {
        // Upstream's field path has no index.
        let at = |field: &str| path.child(field);
        for field in ["apiVersion", "kind", "name", "uid"] {
            let message = if field == "apiVersion" { "version must not be empty" } else { "must not be empty" };
            if text(owner, field).is_empty() {
                errors.invalid(&at(field), &json!(""), message);
            }
        }
        if text(owner, "apiVersion").matches('/').count() > 1 {
            errors.invalid(&at("apiVersion"), &owner["apiVersion"], "must be <group>/<version> or <version>");
        }
        if owner["apiVersion"] == "v1" && owner["kind"] == "Event" {
            errors.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner["controller"] == json!(true) {
            let name = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => {
                    let text = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    errors.invalid(path, list, &text);
                }
            }
        }
    }
}

fn finalizers(list: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for f in list.as_array().into_iter().flatten() {
        api::names::qualified_name(f.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(path, f, e));
    }
    let has = |name: &str| list.as_array().is_some_and(|l| l.iter().any(|f| f == name));
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(path, list, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

/// Copies the system metadata, which an update cannot change, from the old object (upstream's `BeforeUpdate`).
pub fn preserve_system_metadata(new: &mut Value, old: &Value) {
    let (new, old) = (&mut new["metadata"], &old["metadata"]);
    let Some(new) = new.as_object_mut() else { return };
    for field in ["name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion"] {
        match old.get(field) {
            Some(value) => drop(new.insert(field.to_owned(), value.clone())),
            None => drop(new.remove(field)),
        }
    }
    // An update can omit `deletionTimestamp`, but cannot remove it.
    if let Some(time) = old.get("deletionTimestamp") {
        new.insert("deletionTimestamp".to_owned(), time.clone());
    }
    if let Some(seconds) = old.get("deletionGracePeriodSeconds") {
        new.entry("deletionGracePeriodSeconds").or_insert_with(|| seconds.clone());
    }
    new.remove("selfLink");
}

/// Validates the changes of the metadata in an update.
pub fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, new, old) = (FieldPath::new("metadata"), &new["metadata"], &old["metadata"]);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new[field] != old[field] {
            errors.invalid(&path.child(field), &new[field], "field is immutable");
        }
    }
    if !old["deletionTimestamp"].is_null() {
        let old_finalizers: HashSet<&Value> = old["finalizers"].as_array().into_iter().flatten().collect();
        let mut fresh: Vec<String> = new["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|f| !old_finalizers.contains(f))
            .map(ToString::to_string)
            .collect();
        fresh.sort();
        if !fresh.is_empty() {
            let text = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                fresh.join(", ")
            );
            errors.forbidden(&path.child("finalizers"), &text);
        }
    }
}

/// Removes duplicate owner references, as upstream, and returns the warning about them. `when` is empty for the client's
/// object.
pub fn drop_duplicate_owners(metadata: &mut Value, when: &str) -> Option<String> {
    let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut)?;
    let mut seen = HashSet::new();
    let (unique, duplicates): (Vec<Value>, Vec<Value>) = owners.drain(..).partition(|o| seen.insert(o.to_string()));
    *owners = unique;
    let duplicates: Vec<&str> = duplicates.iter().map(|o| o["uid"].as_str().unwrap_or("")).collect();
    let hint = "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests";
    (!duplicates.is_empty()).then(|| {
        let which = duplicates.join(", ");
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; {hint}; duplicate UID(s) observed: {which}"
        )
    })
}

/// Part of the warning about duplicate owner references that were added after the client's request.
pub const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Returns upstream's warnings about the metadata of any kind.
pub fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let old_finalizers = old.and_then(|o| o["metadata"]["finalizers"].as_array());
    let old_finalizers: HashSet<&Value> = old_finalizers.into_iter().flatten().collect();
    new["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|f| !old_finalizers.contains(f))
        .filter_map(Value::as_str)
        .filter(|f| !has_domain(f))
        .map(|f| {
            format!("metadata.finalizers: {f:?}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers")
        })
        .collect()
}
