//! Validation of volume mounts (`ValidateVolumeMounts`).

use super::{validate_descending_path, volume::Volumes};
use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use std::collections::BTreeSet;

pub(super) fn validate_volume_mounts(container: &FieldCursor<'_, '_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let device_names: BTreeSet<&str> = devices.items().map(|device| device.at("name").text()).collect();
    let device_paths: BTreeSet<&str> = devices.items().map(|device| device.at("devicePath").text()).collect();
    let mut seen = BTreeSet::new();
    for mount in mounts.items() {
        let (name, mount_path) = (mount.at("name"), mount.at("mountPath"));
        if name.text().is_empty() {
            name.required("", errors);
        }
        let volume = volumes.get(name.text());
        if volume.is_none() {
            name.not_found(errors);
        }
        if mount_path.text().is_empty() {
            mount_path.required("", errors);
        }
        if !seen.insert(mount_path.text()) {
            mount_path.invalid("must be unique", errors);
        }
        if device_names.contains(name.text()) {
            name.invalid("must not already exist in volumeDevices", errors);
        }
        if device_paths.contains(mount_path.text()) {
            mount_path.invalid("must not already exist as a path in volumeDevices", errors);
        }
        // Some paths lack the index, as upstream.
        let without_index = mounts.with_value(mount.value());
        for name in ["subPath", "subPathExpr"] {
            let field = mount.at(name);
            if field.text().is_empty() {
                continue;
            }
            if volume.is_some_and(|kind| *kind == "image") {
                field.invalid("not allowed in image volume sources", errors);
            }
            validate_descending_path(&without_index.at(name), errors);
        }
        let expression = mount.at("subPathExpr");
        if !mount.at("subPath").text().is_empty() && !expression.text().is_empty() {
            expression.invalid("subPathExpr and subPath are mutually exclusive", errors);
        }
        validate_propagation(&without_index.at("mountPropagation"), container, errors);
        validate_recursive_read_only(&mount, errors);
    }
}

fn validate_propagation(propagation: &FieldCursor<'_, '_>, container: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if propagation.is_null() {
        return;
    }
    propagation.one_of(enums::MOUNT_PROPAGATIONS, errors);
    let is_privileged = container.at("securityContext").at("privileged").is_true();
    if propagation.text() == "Bidirectional" && !is_privileged {
        propagation.forbidden("Bidirectional mount propagation is available only to privileged containers", errors);
    }
}

fn validate_recursive_read_only(mount: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let recursive = mount.at("recursiveReadOnly");
    match recursive.text() {
        "Disabled" => {}
        _ if recursive.is_null() => {}
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").is_true() {
                recursive.forbidden("may only be specified when readOnly is true", errors);
            }
            let propagation = mount.at("mountPropagation");
            if propagation.is_set() && propagation.text() != "None" {
                recursive.forbidden("may only be specified when mountPropagation is None or not specified", errors);
            }
        }
        _ => recursive.not_supported(&["Disabled", "Enabled", "IfPossible"], errors),
    }
}
