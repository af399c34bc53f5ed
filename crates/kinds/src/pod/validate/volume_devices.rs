//! Validation of raw block volumes (`ValidateVolumeDevices`).

use super::volume::Volumes;
use crate::{FieldErrors, field_cursor::FieldCursor};
use std::collections::{BTreeSet, HashSet};

pub(super) fn validate_volume_devices(
    container: &FieldCursor<'_, '_>,
    volumes: &Volumes<'_>,
    errors: &mut FieldErrors,
) {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    let mounts = container.at("volumeMounts");
    let mounted_names: HashSet<&str> = mounts.items().map(|mount| mount.at("name").text()).collect();
    let mounted_paths: HashSet<&str> = mounts.items().map(|mount| mount.at("mountPath").text()).collect();
    for device in container.at("volumeDevices").items() {
        let (name, target) = (device.at("name"), device.at("devicePath"));
        if name.text().is_empty() {
            name.required("", errors);
        } else if !names.insert(name.text()) {
            name.invalid("must be unique", errors);
        }
        match volumes.get(name.text()) {
            None => name.not_found(errors),
            Some(&"persistentVolumeClaim" | &"ephemeral") => {}
            Some(_) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                name.invalid(detail, errors);
            }
        }
        if target.text().is_empty() {
            target.required("", errors);
        }
        if paths.contains(target.text()) {
            target.invalid("must be unique", errors);
        }
        if target.text().split('/').any(|part| part == "..") {
            target.invalid("can not contain backsteps ('..')", errors);
        } else {
            paths.insert(target.text());
        }
        if mounted_names.contains(name.text()) {
            name.invalid("must not already exist in volumeMounts", errors);
        }
        if mounted_paths.contains(target.text()) {
            target.invalid("must not already exist as a path in volumeMounts", errors);
        }
    }
}
