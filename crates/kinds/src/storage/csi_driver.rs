//! Validation of CSIDrivers and CSINodes (`pkg/apis/storage/validation`).

use crate::{
    FieldErrors, FieldPath,
    field_validation::{
        items, text as text_of, validate_csi_driver_name, validate_immutable, validate_nonnegative,
        validate_qualified_name,
    },
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
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    if !policies.contains(&text_of(spec, "fsGroupPolicy")) {
        errors.not_supported(&path.child("fsGroupPolicy"), &spec["fsGroupPolicy"], &policies);
    }
    validate_token_requests(spec, &path.child("tokenRequests"), errors);
    for mode in items(spec, "volumeLifecycleModes") {
        if !matches!(mode.as_str(), Some("Ephemeral" | "Persistent")) {
            errors.not_supported(&path.child("volumeLifecycleModes"), mode, &["Ephemeral", "Persistent"]);
        }
    }
    let period = &spec["nodeAllocatableUpdatePeriodSeconds"];
    if period.as_i64().is_some_and(|seconds| seconds < MIN_UPDATE_PERIOD_SECONDS) {
        let detail = "must be greater than or equal to 10 seconds";
        errors.invalid(&path.child("nodeAllocatableUpdatePeriodSeconds"), period, detail);
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
fn validate_token_requests(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut audiences = BTreeSet::new();
    for (i, request) in items(spec, "tokenRequests").enumerate() {
        let (path, audience) = (path.index(i), text_of(request, "audience"));
        if !audiences.insert(audience) {
            errors.duplicate(&path.child("audience"), &json!(audience));
            continue;
        }
        let (lifetime, at) = (&request["expirationSeconds"], path.child("expirationSeconds"));
        match lifetime.as_i64() {
            Some(seconds) if seconds < MIN_TOKEN_SECONDS => {
                errors.invalid(&at, lifetime, "may not specify a duration less than 10 minutes");
            }
            Some(seconds) if seconds > MAX_TOKEN_SECONDS => {
                errors.invalid(&at, lifetime, "may not specify a duration larger than 2^32 seconds");
            }
            _ => {}
        }
    }
}

/// Validates a CSINode (`ValidateCSINode`).
pub(super) fn validate_csi_node(object: &Value, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for (i, driver) in items(&object["spec"], "drivers").enumerate() {
        let path = FieldPath::new("spec").child("drivers").index(i);
        validate_csi_driver_name(&driver["name"], &path.child("name"), errors);
        let id = text_of(driver, "nodeID");
        if id.is_empty() {
            errors.required(&path.child("nodeID"), "");
        }
        if id.len() > MAX_NODE_ID_LENGTH {
            errors.invalid(
                &path.child("nodeID"),
                &json!(id),
                &format!("must be {MAX_NODE_ID_LENGTH} characters or less"),
            );
        }
        validate_nonnegative(&driver["allocatable"], "count", &path.child("allocatable"), errors);
        if !names.insert(text_of(driver, "name")) {
            errors.duplicate(&path.child("name"), &driver["name"]);
        }
        let mut keys = BTreeSet::new();
        // Upstream's path is that of the driver.
        for key in items(driver, "topologyKeys") {
            if key == "" {
                errors.required(&path, "");
            }
            if !keys.insert(key.as_str()) {
                errors.duplicate(&path, key);
            }
            validate_qualified_name(key, &path, errors);
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
