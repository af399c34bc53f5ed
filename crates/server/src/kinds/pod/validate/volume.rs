//! Volumes.

use super::{container, container::Volumes, descending_path, items, required_label, text};
use crate::kinds::{FieldErrors, FieldPath};
use api::quantity::Amount;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What a `downwardAPI` volume can show.
const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn all(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) -> Volumes {
    let mut names = Volumes::new();
    for (i, v) in items(spec, "volumes").enumerate() {
        let path = path.index(i);
        required_label(&v["name"], &path.child("name"), errors);
        if names.insert(text(v, "name").to_owned(), v.get("image").is_some()).is_some() {
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
        "projected" => projected(source, &path, errors),
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
        target => {
            descending_path(&item["path"], &path, errors);
            if target.starts_with("..") && !target.starts_with("../") {
                errors.invalid(&path, &item["path"], "must not start with '..'");
            }
        }
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

fn projected(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    mode(source, "defaultMode", path, errors);
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (i, s) in items(source, "sources").enumerate() {
        let path = path.child("sources").index(i);
        let Some((kind, inner)) = s.as_object().and_then(|m| m.iter().next()) else { continue };
        let at = path.child(kind);
        match kind.as_str() {
            "secret" | "configMap" => {
                if text(inner, "name").is_empty() {
                    errors.required(&at.child("name"), "");
                }
                key_paths(inner, &at, errors);
            }
            "downwardAPI" => downward(inner, &at, errors),
            "serviceAccountToken" => {
                let seconds = inner["expirationSeconds"].as_i64().unwrap_or(3600);
                if seconds < 600 {
                    errors.invalid(
                        &at.child("expirationSeconds"),
                        &json!(seconds),
                        "may not specify a duration less than 10 minutes",
                    );
                }
                if text(inner, "path").is_empty() {
                    errors.required(&at.child("path"), "");
                }
            }
            _ => {}
        }
        let single = inner["path"].as_str().into_iter();
        let many = items(inner, "items").filter_map(|item| item["path"].as_str());
        for file in single.chain(many).filter(|p| !p.is_empty()) {
            if !taken.insert(file.to_owned()) {
                errors.invalid(&path, &json!(text(inner, "name")), &format!("conflicting duplicate paths: {file}"));
            }
        }
    }
}
