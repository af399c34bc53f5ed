//! Validation of volumes (`ValidateVolumes`).

mod external;
mod projected;

use super::{container, items, text, validate_descending_path, validate_required_dns_label};
use crate::{
    FieldErrors, FieldPath,
    volume_source::{self, Owner},
};
use api::quantity::Amount;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Valid volumes of a Pod: type by name.
pub(super) type Volumes = BTreeMap<String, String>;

/// Fields that a `downwardAPI` volume can reference.
const DOWNWARD_API_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const FILE_MODE_MESSAGE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn validate_volumes(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) -> Volumes {
    let mut names = Volumes::new();
    for (i, v) in items(spec, "volumes").enumerate() {
        let path = path.index(i);
        let (name, before) = (text(v, "name"), errors.0.len());
        let kind = validate_source(v, &path, errors);
        validate_required_dns_label(&v["name"], &path.child("name"), errors);
        if names.contains_key(name) {
            errors.duplicate(&path.child("name"), &v["name"]);
        }
        // Like upstream, an invalid volume counts as missing for duplicate names and for mounts.
        if errors.0.len() == before {
            names.insert(name.to_owned(), kind.to_owned());
        }
    }
    names
}

/// Validates the names of the claims of ephemeral volumes: they must be valid, and no other volume may reference them.
/// Skipped for templates, whose Pod name is unknown.
pub(super) fn validate_ephemeral_claim_names(pod: &str, spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if pod.is_empty() {
        return;
    }
    let claim_name = |v: &Value| {
        let is_named = !v["ephemeral"].is_null() && !text(v, "name").is_empty();
        is_named.then(|| api::persistent_volume_claim::ephemeral_claim_name(pod, text(v, "name")))
    };
    let ephemeral_claims: HashSet<String> = items(spec, "volumes").filter_map(claim_name).collect();
    for (i, v) in items(spec, "volumes").enumerate() {
        let path = path.index(i);
        if let Some(claim) = claim_name(v) {
            for detail in api::names::dns1123_subdomain(&claim) {
                errors.invalid(&path.child("name"), &v["name"], &format!("PVC name {claim:?}: {detail}"));
            }
        }
        let source = &v["persistentVolumeClaim"];
        if source["claimName"].as_str().is_some_and(|name| ephemeral_claims.contains(name)) {
            let path = path.child("persistentVolumeClaim").child("claimName");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&path, &source["claimName"], detail);
        }
    }
}

/// Validates the source of a volume. Returns its type.
fn validate_source(v: &Value, path: &FieldPath, errors: &mut FieldErrors) -> &'static str {
    let owner = Owner::Pod(text(v, "name"));
    let Some((kind, source)) = volume_source::single_source(v, owner, path, errors) else { return "" };
    volume_source::validate_source(kind, source, owner, path, errors);
    let path = path.child(kind);
    match kind {
        "emptyDir" => {
            let limit = source["sizeLimit"].as_str().and_then(|s| Amount::parse(s).ok());
            if limit.is_some_and(Amount::is_negative) {
                let text = "SizeLimit field must be a valid resource quantity";
                errors.forbidden(&path.child("sizeLimit"), text);
            }
        }
        "secret" => validate_files(source, "secretName", &path, errors),
        "configMap" => validate_files(source, "name", &path, errors),
        "downwardAPI" => {
            validate_mode(source, "defaultMode", &path, errors);
            validate_downward_api(source, &path, errors);
        }
        "persistentVolumeClaim" if text(source, "claimName").is_empty() => {
            errors.required(&path.child("claimName"), "");
        }
        "projected" => projected::validate_projected(source, &path, errors),
        "csi" => external::validate_csi(source, &path, errors),
        "ephemeral" => external::validate_ephemeral(source, &path, errors),
        "image" => external::validate_image(source, &path, errors),
        _ => {}
    }
    kind
}

fn validate_mode(v: &Value, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if v[field].as_i64().is_some_and(|m| !(0..=0o777).contains(&m)) {
        errors.invalid(&path.child(field), &v[field], FILE_MODE_MESSAGE);
    }
}

fn validate_files(source: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if text(source, name).is_empty() {
        errors.required(&path.child(name), "");
    }
    validate_mode(source, "defaultMode", path, errors);
    validate_key_paths(source, path, errors);
}

fn validate_key_paths(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, item) in items(source, "items").enumerate() {
        let path = path.child("items").index(i);
        if text(item, "key").is_empty() {
            errors.required(&path.child("key"), "");
        }
        validate_file_path(item, &path, errors);
        validate_mode(item, "mode", &path, errors);
    }
}

/// Validates a path in a volume (`validateLocalNonReservedPath`).
fn validate_file_path(item: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("path");
    match text(item, "path") {
        "" => errors.required(&path, ""),
        _ => validate_non_reserved_path(&item["path"], &path, errors),
    }
}

pub(super) fn validate_non_reserved_path(target: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_descending_path(target, path, errors);
    if target.as_str().is_some_and(|t| t.starts_with("..") && !t.starts_with("../")) {
        errors.invalid(path, target, "must not start with '..'");
    }
}

fn validate_downward_api(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    // Upstream's path lacks the items.
    for item in items(source, "items") {
        validate_file_path(item, path, errors);
        match (item.get("fieldRef"), item.get("resourceFieldRef")) {
            (Some(_), Some(_)) => {
                errors.invalid(path, item, "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
            (Some(field), None) => {
                container::validate_field_ref(field, &DOWNWARD_API_FIELDS, &path.child("fieldRef"), errors);
            }
            (None, Some(resource)) => {
                if text(resource, "containerName").is_empty() {
                    errors.required(&path.child("resourceFieldRef").child("containerName"), "");
                } else {
                    container::validate_resource_field_ref(resource, &path.child("resourceFieldRef"), errors);
                }
            }
            (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
        }
        validate_mode(item, "mode", path, errors);
    }
}
