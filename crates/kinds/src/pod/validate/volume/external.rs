//! Validation of `image`, `csi` and `ephemeral` volumes.

use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use api::quantity::Amount;

const MAX_DRIVER_NAME_LENGTH: usize = 63;

/// Validates an image volume (`validateImageVolumeSource`).
pub(super) fn validate_image(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if source.at("reference").text().is_empty() {
        source.at("reference").required("", errors);
    }
    source.at("pullPolicy").one_of(enums::PULL_POLICIES, errors);
}

/// Validates a CSI ephemeral inline volume (`validateCSIVolumeSource`).
pub(super) fn validate_csi(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let driver = source.at("driver");
    if driver.text().is_empty() {
        driver.required("", errors);
    }
    if driver.text().len() > MAX_DRIVER_NAME_LENGTH {
        driver.too_long(MAX_DRIVER_NAME_LENGTH, errors);
    }
    driver.validate_text(|name| api::names::dns1123_subdomain(&name.to_lowercase()), errors);
    let secret = source.at("nodePublishSecretRef");
    if secret.is_null() {
        return;
    }
    let name = secret.at("name");
    if name.text().is_empty() {
        name.required("", errors);
    } else {
        // Upstream's path lacks `nodePublishSecretRef`.
        source.with_value(secret.value()).at("name").validate_text(api::names::dns1123_subdomain, errors);
    }
}

/// Validates a generic ephemeral volume (`ValidatePersistentVolumeClaimTemplate`).
pub(super) fn validate_ephemeral(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let template = source.at("volumeClaimTemplate");
    if template.is_null() {
        return template.required("", errors);
    }
    let spec = template.at("spec");
    let (modes, resources, volume_mode) = (spec.at("accessModes"), spec.at("resources"), spec.at("volumeMode"));
    if modes.count() == 0 {
        modes.required("at least 1 access mode is required", errors);
    }
    // Upstream's path lacks the index.
    for mode in modes.items() {
        modes.with_value(mode.value()).supported(enums::ACCESS_MODES, errors);
    }
    let is_exclusive = |mode: &FieldCursor<'_, '_>| mode.text() == "ReadWriteOncePod";
    if modes.items().any(|mode| is_exclusive(&mode)) && !modes.items().all(|mode| is_exclusive(&mode)) {
        modes.forbidden("may not use ReadWriteOncePod with other access modes", errors);
    }
    // Upstream's path lacks `requests`.
    let requests = resources.at("requests");
    let size = resources.with_value(requests.value());
    let size = size.key("storage");
    if size.is_null() {
        size.required("", errors);
    } else if Amount::parse(size.text()).unwrap_or_default() <= Amount::ZERO {
        size.invalid("must be greater than zero", errors);
    }
    if volume_mode.is_set() {
        volume_mode.supported(enums::VOLUME_MODES, errors);
    }
}
