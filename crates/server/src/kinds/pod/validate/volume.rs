//! Volumes.

mod elsewhere;
mod projected;

use super::{container, descending_path, items, required_label, text};
use crate::kinds::{FieldErrors, FieldPath};
use api::quantity::Amount;
use serde_json::Value;
use std::collections::BTreeMap;

/// The volumes of a Pod by name, each with its kind.
pub(super) type Volumes = BTreeMap<String, String>;

/// What a `downwardAPI` volume can show.
const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn all(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) -> Volumes {
    let mut names = Volumes::new();
    for (i, v) in items(spec, "volumes").enumerate() {
        let path = path.index(i);
        required_label(&v["name"], &path.child("name"), errors);
        let kind = v.as_object().into_iter().flatten().map(|(key, _)| key).find(|key| *key != "name");
        if names.insert(text(v, "name").to_owned(), kind.cloned().unwrap_or_default()).is_some() {
            errors.duplicate(&path.child("name"), &v["name"]);
        }
        source(v, &path, errors);
    }
    names
}

fn source(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut kinds = v.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
    let Some((kind, source)) = kinds.next() else {
        return errors.required(path, "must specify a volume type");
    };
    for (other, _) in kinds {
        errors.forbidden(&path.child(other), "may not specify more than 1 volume type");
    }
    let path = path.child(kind);
    match kind.as_str() {
        "hostPath" => host_path(source, &path, errors),
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
        "nfs" => elsewhere::nfs(source, &path, errors),
        "csi" => elsewhere::csi(source, &path, errors),
        "ephemeral" => elsewhere::ephemeral(source, &path, errors),
        "image" => elsewhere::image(source, &path, errors),
        _ => {}
    }
}

fn host_path(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if text(source, "path").is_empty() {
        errors.required(&path.child("path"), "");
    } else if text(source, "path").split('/').any(|p| p == "..") {
        errors.invalid(&path.child("path"), &source["path"], "must not contain '..'");
    }
    let types = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if !types.contains(&text(source, "type")) {
        errors.not_supported(&path.child("type"), &source["type"], &types);
    }
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
