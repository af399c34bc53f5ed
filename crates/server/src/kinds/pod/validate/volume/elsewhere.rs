//! Volumes that come from elsewhere. No node of Podium can mount them; what they say is checked as anywhere.

use crate::kinds::{
    FieldErrors, FieldPath,
    pod::validate::{items, one_of, subdomain, text},
};
use serde_json::{Map, Value, json};

const LONGEST_DRIVER: usize = 63;
const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// An image; without a reference only in a template, whose owner fills it in.
pub(super) fn image(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if text(source, "reference").is_empty() {
        errors.required(&path.child("reference"), "");
    }
    one_of(source, "pullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
}

/// A driver's volume that lives as long as the Pod.
pub(super) fn csi(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, driver) = (path.child("driver"), text(source, "driver"));
    if driver.is_empty() {
        errors.required(&at, "");
    }
    if driver.len() > LONGEST_DRIVER {
        errors.too_long(&at, LONGEST_DRIVER);
    }
    let wrong = api::names::dns1123_subdomain(&driver.to_lowercase());
    wrong.iter().for_each(|e| errors.invalid(&at, &json!(driver), e));
    let Some(secret) = source.get("nodePublishSecretRef").filter(|r| r.is_object()) else { return };
    match text(secret, "name") {
        "" => errors.required(&path.child("nodePublishSecretRef").child("name"), ""),
        // The path is upstream's.
        _ => subdomain(&secret["name"], &path.child("name"), errors),
    }
}

/// A claim that is made for the Pod (`ValidatePersistentVolumeClaimTemplate`).
pub(super) fn ephemeral(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("volumeClaimTemplate");
    let Some(template) = source.get("volumeClaimTemplate").filter(|t| t.is_object()) else {
        return errors.required(&path, "");
    };
    let (spec, path) = (&template["spec"], path.child("spec"));
    let modes = path.child("accessModes");
    if items(spec, "accessModes").next().is_none() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    for mode in items(spec, "accessModes").filter(|m| !m.as_str().is_some_and(|m| MODES.contains(&m))) {
        errors.not_supported(&modes, mode, &MODES);
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
    if spec.get("volumeMode").is_some_and(|m| !matches!(m.as_str(), Some("Block" | "Filesystem"))) {
        errors.not_supported(&path.child("volumeMode"), &spec["volumeMode"], &["Block", "Filesystem"]);
    }
}
