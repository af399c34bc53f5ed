//! Validation of volume mounts (`ValidateVolumeMounts`).

use super::{items, text, validate_descending_path, validate_one_of, volume::Volumes};
use crate::{FieldErrors, FieldPath, enums};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn validate_recursive_read_only(m: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match m["recursiveReadOnly"].as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if m["readOnly"] != json!(true) {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if !matches!(m["mountPropagation"].as_str(), None | Some("None")) {
                errors.forbidden(path, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(_) => errors.not_supported(path, &m["recursiveReadOnly"], &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn validate_volume_mounts(c: &Value, path: &FieldPath, volumes: &Volumes, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    let device_fields =
        |field: &str| -> BTreeSet<&str> { items(c, "volumeDevices").filter_map(|d| d[field].as_str()).collect() };
    let (device_names, device_paths) = (device_fields("name"), device_fields("devicePath"));
    for (i, m) in items(c, "volumeMounts").enumerate() {
        // Some paths lack the index, as upstream.
        let (list_path, path) = (path, path.index(i));
        if text(m, "name").is_empty() {
            errors.required(&path.child("name"), "");
        }
        let volume = volumes.get(text(m, "name"));
        if volume.is_none() {
            errors.not_found(&path.child("name"), &json!(text(m, "name")));
        }
        if text(m, "mountPath").is_empty() {
            errors.required(&path.child("mountPath"), "");
        }
        if !seen.insert(text(m, "mountPath")) {
            errors.invalid(&path.child("mountPath"), &m["mountPath"], "must be unique");
        }
        if device_names.contains(text(m, "name")) {
            errors.invalid(&path.child("name"), &m["name"], "must not already exist in volumeDevices");
        }
        if device_paths.contains(text(m, "mountPath")) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(&path.child("mountPath"), &m["mountPath"], detail);
        }
        for field in ["subPath", "subPathExpr"].into_iter().filter(|f| !text(m, f).is_empty()) {
            if volume.is_some_and(|kind| kind == "image") {
                errors.invalid(&path.child(field), &m[field], "not allowed in image volume sources");
            }
            validate_descending_path(&m[field], &list_path.child(field), errors);
        }
        if !text(m, "subPath").is_empty() && !text(m, "subPathExpr").is_empty() {
            errors.invalid(
                &path.child("subPathExpr"),
                &m["subPathExpr"],
                "subPathExpr and subPath are mutually exclusive",
            );
        }
        if m.get("mountPropagation").is_some() {
            validate_one_of(m, "mountPropagation", enums::MOUNT_PROPAGATIONS, list_path, errors);
            if m["mountPropagation"] == "Bidirectional" && c["securityContext"]["privileged"] != json!(true) {
                let text = "Bidirectional mount propagation is available only to privileged containers";
                errors.forbidden(&list_path.child("mountPropagation"), text);
            }
        }
        validate_recursive_read_only(m, &path.child("recursiveReadOnly"), errors);
    }
}
