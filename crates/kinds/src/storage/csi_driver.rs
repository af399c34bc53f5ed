//! Validation of CSIDrivers and CSINodes (`pkg/apis/storage/validation`).

use crate::{
    FieldErrors, FieldPath,
    field_cursor::FieldCursor,
    field_validation::{items, validate_csi_driver_name, validate_immutable, validate_qualified_name},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Minimum and maximum lifetime of a token in seconds.
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;
/// Minimum `nodeAllocatableUpdatePeriodSeconds`.
const MIN_UPDATE_PERIOD_SECONDS: i64 = 10;
const MAX_NODE_ID_LENGTH: usize = 256;

/// Validates a CSIDriver (`ValidateCSIDriver`).
pub(super) fn validate_csi_driver(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    spec.at("fsGroupPolicy").supported(&["File", "None", "ReadWriteOnceWithFSType"], errors);
    validate_token_requests(&spec.at("tokenRequests"), errors);
    let modes = spec.at("volumeLifecycleModes");
    for mode in modes.items().filter(|mode| !matches!(mode.text(), "Ephemeral" | "Persistent")) {
        // Upstream's path has no index.
        errors.not_supported(&modes.path(), mode.value(), &["Ephemeral", "Persistent"]);
    }
    let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
    if period.integer().is_some_and(|seconds| seconds < MIN_UPDATE_PERIOD_SECONDS) {
        period.invalid("must be greater than or equal to 10 seconds", errors);
    }
}

/// Validates an update of a CSIDriver (`ValidateCSIDriverUpdate`).
pub(super) fn validate_csi_driver_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec");
    // Upstream's path has `attachedRequired`.
    for (field, path_name) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
    {
        validate_immutable(&object["spec"][field], &old["spec"][field], &path.child(path_name), errors);
    }
}

/// Validates token requests, whose audiences must be unique (`validateTokenRequests`).
fn validate_token_requests(requests: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut audiences = BTreeSet::new();
    for request in requests.items() {
        let (audience, lifetime) = (request.at("audience"), request.at("expirationSeconds"));
        if !audiences.insert(audience.text()) {
            errors.duplicate(&audience.path(), &json!(audience.text()));
            continue;
        }
        match lifetime.integer() {
            Some(seconds) if seconds < MIN_TOKEN_SECONDS => {
                lifetime.invalid("may not specify a duration less than 10 minutes", errors);
            }
            Some(seconds) if seconds > MAX_TOKEN_SECONDS => {
                lifetime.invalid("may not specify a duration larger than 2^32 seconds", errors);
            }
            _ => {}
        }
    }
}

/// Validates a CSINode (`ValidateCSINode`).
pub(super) fn validate_csi_node(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let mut names = BTreeSet::new();
    for driver in object.at("spec").at("drivers").items() {
        let (name, id) = (driver.at("name"), driver.at("nodeID"));
        name.validate(validate_csi_driver_name, errors);
        if id.text().is_empty() {
            id.required("", errors);
        }
        if id.text().len() > MAX_NODE_ID_LENGTH {
            id.invalid(&format!("must be {MAX_NODE_ID_LENGTH} characters or less"), errors);
        }
        driver.at("allocatable").at("count").nonnegative(errors);
        if !names.insert(name.text()) {
            name.duplicate(errors);
        }
        let (path, mut keys) = (driver.path(), BTreeSet::new());
        // Upstream's path is that of the driver.
        for key in driver.at("topologyKeys").items() {
            if key.text().is_empty() {
                errors.required(&path, "");
            }
            if !keys.insert(key.text()) {
                errors.duplicate(&path, key.value());
            }
            validate_qualified_name(key.value(), &path, errors);
        }
    }
}

/// Validates an update of a CSINode: drivers are immutable, except `allocatable` (`ValidateCSINodeUpdate`).
pub(super) fn validate_csi_node_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let immutable_fields = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|fields| fields.remove("allocatable"));
        driver
    };
    for old_driver in items(&old["spec"], "drivers") {
        for new_driver in items(&object["spec"], "drivers").filter(|now| now["name"] == old_driver["name"]) {
            validate_immutable(
                &immutable_fields(new_driver),
                &immutable_fields(old_driver),
                &FieldPath::new("spec").child("drivers"),
                errors,
            );
        }
    }
}
