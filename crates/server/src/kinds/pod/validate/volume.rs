//! Volumes.

mod elsewhere;
mod projected;

use super::{container, descending_path, items, required_label, text};
use crate::kinds::{
    FieldErrors, FieldPath,
    volume_source::{self, Owner},
};
use api::quantity::Amount;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// The volumes of a Pod that are right, by name, each with its kind.
pub(super) type Volumes = BTreeMap<String, String>;

/// What a `downwardAPI` volume can show.
const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn all(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) -> Volumes {
    let mut names = Volumes::new();
    for (i, v) in items(spec, "volumes").enumerate() {
        let path = path.index(i);
        let (name, before) = (text(v, "name"), errors.0.len());
        let kind = source(v, &path, errors);
        required_label(&v["name"], &path.child("name"), errors);
        if names.contains_key(name) {
            errors.duplicate(&path.child("name"), &v["name"]);
        }
        // What is wrong counts as not there, for its name as for who mounts it.
        if errors.0.len() == before {
            names.insert(name.to_owned(), kind.to_owned());
        }
    }
    names
}

/// The claims that are made for ephemeral volumes have names that claims may have, and are no other volume's. Of a template
/// nobody knows yet what they will be called.
pub(super) fn claims_to_be_made(pod: &str, spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if pod.is_empty() {
        return;
    }
    let made = |v: &Value| {
        let is_named = !v["ephemeral"].is_null() && !text(v, "name").is_empty();
        is_named.then(|| api::claim::made_name(pod, text(v, "name")))
    };
    let all_made: HashSet<String> = items(spec, "volumes").filter_map(made).collect();
    for (i, v) in items(spec, "volumes").enumerate() {
        let path = path.index(i);
        if let Some(claim) = made(v) {
            for why in api::names::dns1123_subdomain(&claim) {
                errors.invalid(&path.child("name"), &v["name"], &format!("PVC name {claim:?}: {why}"));
            }
        }
        let source = &v["persistentVolumeClaim"];
        if source["claimName"].as_str().is_some_and(|name| all_made.contains(name)) {
            let path = path.child("persistentVolumeClaim").child("claimName");
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&path, &source["claimName"], why);
        }
    }
}

/// Checks the source of a volume; gives its kind.
fn source(v: &Value, path: &FieldPath, errors: &mut FieldErrors) -> &'static str {
    let owner = Owner::Pod(text(v, "name"));
    let Some((kind, source)) = volume_source::only(v, owner, path, errors) else { return "" };
    volume_source::check(kind, source, owner, path, errors);
    let path = path.child(kind);
    match kind {
        "emptyDir" => {
            let limit = source["sizeLimit"].as_str().and_then(|s| Amount::parse(s).ok());
            if limit.is_some_and(Amount::is_negative) {
                let text = "SizeLimit field must be a valid resource quantity";
                errors.forbidden(&path.child("sizeLimit"), text);
            }
        }
        "secret" => files(source, "secretName", &path, errors),
        "configMap" => files(source, "name", &path, errors),
        "downwardAPI" => {
            mode(source, "defaultMode", &path, errors);
            downward(source, &path, errors);
        }
        "persistentVolumeClaim" if text(source, "claimName").is_empty() => {
            errors.required(&path.child("claimName"), "");
        }
        "projected" => projected::source(source, &path, errors),
        "csi" => elsewhere::csi(source, &path, errors),
        "ephemeral" => elsewhere::ephemeral(source, &path, errors),
        "image" => elsewhere::image(source, &path, errors),
        _ => {}
    }
    kind
}

fn mode(v: &Value, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if v[field].as_i64().is_some_and(|m| !(0..=0o777).contains(&m)) {
        errors.invalid(&path.child(field), &v[field], MODE);
    }
}

fn files(source: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if text(source, name).is_empty() {
        errors.required(&path.child(name), "");
    }
    mode(source, "defaultMode", path, errors);
    key_paths(source, path, errors);
}

fn key_paths(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, item) in items(source, "items").enumerate() {
        let path = path.child("items").index(i);
        if text(item, "key").is_empty() {
            errors.required(&path.child("key"), "");
        }
        file_path(item, &path, errors);
        mode(item, "mode", &path, errors);
    }
}

/// A path in a volume (`validateLocalNonReservedPath`): nothing of it is the kubelet's own.
fn file_path(item: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("path");
    match text(item, "path") {
        "" => errors.required(&path, ""),
        _ => non_reserved(&item["path"], &path, errors),
    }
}

pub(super) fn non_reserved(target: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    descending_path(target, path, errors);
    if target.as_str().is_some_and(|t| t.starts_with("..") && !t.starts_with("../")) {
        errors.invalid(path, target, "must not start with '..'");
    }
}

fn downward(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    // Upstream leaves the items out of the path.
    for item in items(source, "items") {
        file_path(item, path, errors);
        match (item.get("fieldRef"), item.get("resourceFieldRef")) {
            (Some(_), Some(_)) => {
                errors.invalid(path, item, "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
            (Some(field), None) => container::field_ref(field, &FIELDS, &path.child("fieldRef"), errors),
            (None, Some(resource)) => {
                if text(resource, "containerName").is_empty() {
                    errors.required(&path.child("resourceFieldRef").child("containerName"), "");
                } else {
                    container::resource_ref(resource, &path.child("resourceFieldRef"), errors);
                }
            }
            (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
        }
        mode(item, "mode", path, errors);
    }
}
