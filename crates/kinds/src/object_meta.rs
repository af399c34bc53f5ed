//! Validation of `ObjectMeta` (upstream's `apimachinery/pkg/api/validation/objectmeta.go`).

use crate::{FieldErrors, FieldPath, Kind, field_cursor::FieldCursor, validate_path_segment_name};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Maximum size of all annotations of an object, in bytes (upstream's `TotalAnnotationSizeLimitB`).
const MAX_ANNOTATIONS: usize = 256 << 10;

/// Validates the metadata of a new or updated object.
pub fn validate(kind: &dyn Kind, value: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(value);
    let metadata = object.at("metadata");
    let (name, prefix, namespace) = (metadata.at("name"), metadata.at("generateName"), metadata.at("namespace"));
    if !prefix.text().is_empty() {
        // A suffix is appended to the prefix, so it may end with `-`, unlike a name.
        prefix.validate_text(|prefix| kind.validate_name(&format!("{}a", prefix.trim_end_matches('-'))), errors);
    }
    if name.text().is_empty() {
        name.required("name or generateName is required", errors);
    } else {
        name.validate_text(|name| kind.validate_name(name), errors);
    }
    if !kind.info().namespaced && !namespace.text().is_empty() {
        namespace.forbidden("not allowed on this type", errors);
    }
    validate_maps_and_lists(&metadata, errors);
    if !is_generic(kind) {
        standard_finalizers(&metadata.at("finalizers"), errors);
    }
}

fn validate_maps_and_lists(metadata: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    labels(&metadata.at("labels"), errors);
    annotations(&metadata.at("annotations"), errors);
    owners(&metadata.at("ownerReferences"), errors);
    finalizers(&metadata.at("finalizers"), errors);
}

/// Validates the metadata of an embedded resource, whose kind is unknown and whose name is optional.
pub(crate) fn validate_embedded(metadata: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    metadata.at("generateName").validate_text(validate_path_segment_name, errors);
    metadata.at("name").validate_text(validate_path_segment_name, errors);
    let namespace = metadata.at("namespace");
    if !namespace.text().is_empty() {
        namespace.validate_text(api::names::dns1123_label, errors);
    }
    metadata.at("generation").nonnegative(errors);
    validate_maps_and_lists(metadata, errors);
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
fn standard_finalizers(finalizers: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for finalizer in finalizers.items().filter(|finalizer| !has_domain(finalizer.text())) {
        finalizer.invalid("name is neither a standard finalizer name nor is it fully qualified", errors);
    }
}

/// Validates labels, and maps of the same form, such as a Pod's `nodeSelector`.
pub(crate) fn labels(labels: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for (key, value) in labels.entries() {
        api::names::qualified_name(key).iter().for_each(|e| errors.invalid(&labels.path(), &json!(key), e));
        // Upstream's path lacks the key.
        labels.with_value(value.value()).validate_text(api::names::label_value, errors);
    }
}

/// Validates annotations.
pub(crate) fn annotations(annotations: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in annotations.entries() {
        size += key.len() + value.text().len();
        let wrong = api::names::qualified_name(&key.to_lowercase());
        wrong.iter().for_each(|e| errors.invalid(&annotations.path(), &json!(key), e));
    }
    if size > MAX_ANNOTATIONS {
        annotations.too_long(MAX_ANNOTATIONS, errors);
    }
}

/// Returns the first error of the labels and annotations of a webhook's converted object.
pub fn first_error(metadata: &Value) -> Option<String> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new("metadata"));
    let metadata = FieldCursor::new(metadata, &path);
    labels(&metadata.at("labels"), &mut errors);
    annotations(&metadata.at("annotations"), &mut errors);
    errors.0.first().map(ToString::to_string)
}

fn owners(list: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut controller: Option<String> = None;
    for owner in list.items() {
        // Upstream's field path has no index.
        let owner = list.with_value(owner.value());
        let (version, kind, name) = (owner.at("apiVersion"), owner.at("kind"), owner.at("name"));
        for (field, detail) in [
            (version, "version must not be empty"),
            (kind, "must not be empty"),
            (name, "must not be empty"),
            (owner.at("uid"), "must not be empty"),
        ] {
            if field.text().is_empty() {
                errors.invalid(&field.path(), &json!(""), detail);
            }
        }
        if version.text().matches('/').count() > 1 {
            version.invalid("must be <group>/<version> or <version>", errors);
        }
        if version.text() == "v1" && kind.text() == "Event" {
            owner.invalid("/v1, Kind=Event is disallowed from being an owner", errors);
        }
        if owner.at("controller").is_true() {
            let name = format!("{}/{}", kind.text(), name.text());
            match &controller {
                None => controller = Some(name),
                Some(first) => {
                    let text = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    list.invalid(&text, errors);
                }
            }
        }
    }
}

fn finalizers(list: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for finalizer in list.items() {
        // Upstream's path has no index.
        list.with_value(finalizer.value()).validate_text(api::names::qualified_name, errors);
    }
    let has = |name: &str| list.items().any(|finalizer| finalizer.text() == name);
    if has("orphan") && has("foregroundDeletion") {
        list.invalid("finalizer orphan and foregroundDeletion cannot be both set", errors);
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
    let (object, old) = (FieldCursor::object(new), FieldCursor::object(old));
    let (new, old) = (object.at("metadata"), old.at("metadata"));
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        new.at(name).validate_immutable(&old.at(name), errors);
    }
    if old.at("deletionTimestamp").is_set() {
        let (finalizers, old_finalizers) = (new.at("finalizers"), old.at("finalizers"));
        let known: HashSet<&str> = old_finalizers.items().map(|finalizer| finalizer.text()).collect();
        let fresh = finalizers.items().filter(|finalizer| !known.contains(finalizer.text()));
        let mut fresh: Vec<String> = fresh.map(|finalizer| finalizer.value().to_string()).collect();
        fresh.sort();
        if !fresh.is_empty() {
            let text = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                fresh.join(", ")
            );
            finalizers.forbidden(&text, errors);
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
