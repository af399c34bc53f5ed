//! Validation of CSIDrivers and CSINodes (`pkg/apis/storage/validation`).

use crate::{
    FieldErrors,
    field_cursor::FieldCursor,
    field_validation::{items, validate_csi_driver_name},
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
    for mode in modes.items() {
        // Upstream's path has no index.
        modes.with_value(mode.value()).supported(&["Ephemeral", "Persistent"], errors);
    }
    let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
    if period.integer().is_some_and(|seconds| seconds < MIN_UPDATE_PERIOD_SECONDS) {
        period.invalid("must be greater than or equal to 10 seconds", errors);
    }
}

/// Validates an update of a CSIDriver (`ValidateCSIDriverUpdate`).
pub(super) fn validate_csi_driver_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
    let (spec, old) = (object.at("spec"), old.at("spec"));
    // Upstream's path.
    let attach_required = spec.at("attachRequired").shown_as("attachedRequired");
    attach_required.validate_immutable(&old.at("attachRequired"), errors);
    spec.at("volumeLifecycleModes").validate_immutable(&old.at("volumeLifecycleModes"), errors);
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
        validate_csi_driver_name(&name, errors);
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
        let mut keys = BTreeSet::new();
        for key in driver.at("topologyKeys").items() {
            // Upstream's path is that of the driver.
            let key = driver.with_value(key.value());
            if key.text().is_empty() {
                key.required("", errors);
            }
            if !keys.insert(key.text()) {
                key.duplicate(errors);
            }
            key.validate_text(api::names::qualified_name, errors);
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
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let drivers = spec.at("drivers");
    for old_driver in items(&old["spec"], "drivers") {
        for driver in drivers.items().filter(|driver| *driver.at("name").value() == old_driver["name"]) {
            let (new, old) = (immutable_fields(driver.value()), immutable_fields(old_driver));
            drivers.with_value(&new).validate_immutable(&FieldCursor::object(&old), errors);
        }
    }
}
