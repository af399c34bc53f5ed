//! Validation of `image`, `csi` and `ephemeral` volumes.

use crate::{
    FieldErrors, FieldPath, enums,
    pod::validate::{items, text, validate_dns_subdomain, validate_one_of},
};
use serde_json::{Map, Value, json};

const MAX_DRIVER_NAME_LENGTH: usize = 63;

/// Validates an image volume (`validateImageVolumeSource`).
pub(super) fn validate_image(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if text(source, "reference").is_empty() {
        errors.required(&path.child("reference"), "");
    }
    validate_one_of(source, "pullPolicy", enums::PULL_POLICIES, path, errors);
}

/// Validates a CSI ephemeral inline volume (`validateCSIVolumeSource`).
pub(super) fn validate_csi(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, driver) = (path.child("driver"), text(source, "driver"));
    if driver.is_empty() {
        errors.required(&at, "");
    }
    if driver.len() > MAX_DRIVER_NAME_LENGTH {
        errors.too_long(&at, MAX_DRIVER_NAME_LENGTH);
    }
    let wrong = api::names::dns1123_subdomain(&driver.to_lowercase());
    wrong.iter().for_each(|e| errors.invalid(&at, &json!(driver), e));
    let Some(secret) = source.get("nodePublishSecretRef").filter(|r| r.is_object()) else { return };
    match text(secret, "name") {
        "" => errors.required(&path.child("nodePublishSecretRef").child("name"), ""),
        // Upstream's path lacks `nodePublishSecretRef`.
        _ => validate_dns_subdomain(&secret["name"], &path.child("name"), errors),
    }
}

/// Validates a generic ephemeral volume (`ValidatePersistentVolumeClaimTemplate`).
pub(super) fn validate_ephemeral(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("volumeClaimTemplate");
    let Some(template) = source.get("volumeClaimTemplate").filter(|t| t.is_object()) else {
        return errors.required(&path, "");
    };
    let (spec, path) = (&template["spec"], path.child("spec"));
    let modes = path.child("accessModes");
    if items(spec, "accessModes").next().is_none() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    for mode in items(spec, "accessModes").filter(|m| !m.as_str().is_some_and(|m| enums::ACCESS_MODES.contains(&m))) {
        errors.not_supported(&modes, mode, enums::ACCESS_MODES);
    }
    let exclusive = items(spec, "accessModes").any(|m| m == "ReadWriteOncePod");
    if exclusive && items(spec, "accessModes").any(|m| m != "ReadWriteOncePod") {
        errors.forbidden(&modes, "may not use ReadWriteOncePod with other access modes");
    }
    let at = path.child("resources").key("storage");
    match spec["resources"]["requests"].as_object().and_then(|r: &Map<_, _>| r.get("storage")) {
        None => errors.required(&at, ""),
        Some(size) => {
            let amount = api::quantity::Amount::parse(size.as_str().unwrap_or("")).unwrap_or_default();
            if amount <= api::quantity::Amount::ZERO {
                errors.invalid(&at, size, "must be greater than zero");
            }
        }
    }
    if spec.get("volumeMode").is_some_and(|mode| !enums::VOLUME_MODES.iter().any(|known| mode == known)) {
        errors.not_supported(&path.child("volumeMode"), &spec["volumeMode"], enums::VOLUME_MODES);
    }
}
