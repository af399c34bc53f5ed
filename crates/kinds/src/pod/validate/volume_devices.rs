//! Validation of raw block volumes (`ValidateVolumeDevices`).

use super::{items, text, volume::Volumes};
use crate::{FieldErrors, FieldPath};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

pub(super) fn validate_volume_devices(c: &Value, path: &FieldPath, volumes: &Volumes, errors: &mut FieldErrors) {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    let mount_fields =
        |field: &str| -> HashSet<&str> { items(c, "volumeMounts").filter_map(|m| m[field].as_str()).collect() };
    let (mounted_names, mounted_paths) = (mount_fields("name"), mount_fields("mountPath"));
    for (i, device) in items(c, "volumeDevices").enumerate() {
        let (path, name, target) = (path.index(i), text(device, "name"), text(device, "devicePath"));
        let (at_name, at_path) = (path.child("name"), path.child("devicePath"));
        let (shown_name, shown_path) = (json!(name), json!(target));
        if name.is_empty() {
            errors.required(&at_name, "");
        } else if !names.insert(name) {
            errors.invalid(&at_name, &shown_name, "must be unique");
        }
        match volumes.get(name).map(String::as_str) {
            None => errors.not_found(&at_name, &shown_name),
            Some("persistentVolumeClaim" | "ephemeral") => {}
            Some(_) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&at_name, &shown_name, detail);
            }
        }
        if target.is_empty() {
            errors.required(&at_path, "");
        }
        if paths.contains(target) {
            errors.invalid(&at_path, &shown_path, "must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            errors.invalid(&at_path, &shown_path, "can not contain backsteps ('..')");
        } else {
            paths.insert(target);
        }
        if mounted_names.contains(name) {
            errors.invalid(&at_name, &shown_name, "must not already exist in volumeMounts");
        }
        if mounted_paths.contains(target) {
            errors.invalid(&at_path, &shown_path, "must not already exist as a path in volumeMounts");
        }
    }
}
