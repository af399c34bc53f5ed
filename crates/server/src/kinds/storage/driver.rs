//! What CSIDrivers and CSINodes may say (`pkg/apis/storage/validation`).

use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{csi_driver_name, immutable, items, not_negative, qualified, text as text_of},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How long a token lives at least and at most, in seconds.
const SHORTEST_LIFE: i64 = 600;
const LONGEST_LIFE: i64 = 1 << 32;
/// How often a driver is asked at most how many volumes a node can have, in seconds.
const SHORTEST_PERIOD: i64 = 10;
const LONGEST_ID: usize = 256;

/// `ValidateCSIDriver`.
pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    if !policies.contains(&text_of(spec, "fsGroupPolicy")) {
        errors.not_supported(&path.child("fsGroupPolicy"), &spec["fsGroupPolicy"], &policies);
    }
    tokens(spec, &path.child("tokenRequests"), errors);
    for mode in items(spec, "volumeLifecycleModes") {
        if !matches!(mode.as_str(), Some("Ephemeral" | "Persistent")) {
            errors.not_supported(&path.child("volumeLifecycleModes"), mode, &["Ephemeral", "Persistent"]);
        }
    }
    let period = &spec["nodeAllocatableUpdatePeriodSeconds"];
    if period.as_i64().is_some_and(|seconds| seconds < SHORTEST_PERIOD) {
        let why = "must be greater than or equal to 10 seconds";
        errors.invalid(&path.child("nodeAllocatableUpdatePeriodSeconds"), period, why);
    }
}

/// `ValidateCSIDriverUpdate`.
pub(super) fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec");
    // Upstream calls the first one so.
    for (field, called) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")] {
        immutable(&object["spec"][field], &old["spec"][field], &path.child(called), errors);
    }
}

/// Each audience gets one token (`validateTokenRequests`).
fn tokens(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut audiences = BTreeSet::new();
    for (i, request) in items(spec, "tokenRequests").enumerate() {
        let (path, audience) = (path.index(i), text_of(request, "audience"));
        if !audiences.insert(audience) {
            errors.duplicate(&path.child("audience"), &json!(audience));
            continue;
        }
        let (life, at) = (&request["expirationSeconds"], path.child("expirationSeconds"));
        match life.as_i64() {
            Some(seconds) if seconds < SHORTEST_LIFE => {
                errors.invalid(&at, life, "may not specify a duration less than 10 minutes");
            }
            Some(seconds) if seconds > LONGEST_LIFE => {
                errors.invalid(&at, life, "may not specify a duration larger than 2^32 seconds");
            }
            _ => {}
        }
    }
}

/// `ValidateCSINode`.
pub(super) fn validate_node(object: &Value, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for (i, driver) in items(&object["spec"], "drivers").enumerate() {
        let path = FieldPath::new("spec").child("drivers").index(i);
        csi_driver_name(&driver["name"], &path.child("name"), errors);
        let id = text_of(driver, "nodeID");
        if id.is_empty() {
            errors.required(&path.child("nodeID"), "");
        }
        if id.len() > LONGEST_ID {
            errors.invalid(&path.child("nodeID"), &json!(id), &format!("must be {LONGEST_ID} characters or less"));
        }
        not_negative(&driver["allocatable"], "count", &path.child("allocatable"), errors);
        if !names.insert(text_of(driver, "name")) {
            errors.duplicate(&path.child("name"), &driver["name"]);
        }
        let mut keys = BTreeSet::new();
        // Upstream names the driver, and not the key.
        for key in items(driver, "topologyKeys") {
            if key == "" {
                errors.required(&path, "");
            }
            if !keys.insert(key.as_str()) {
                errors.duplicate(&path, key);
            }
            qualified(key, &path, errors);
        }
    }
}

/// A driver of a node stays as it is, but for how many volumes it can have there.
pub(super) fn validate_node_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|fields| fields.remove("allocatable"));
        driver
    };
    for before in items(&old["spec"], "drivers") {
        for now in items(&object["spec"], "drivers").filter(|now| now["name"] == before["name"]) {
            immutable(&fixed(now), &fixed(before), &FieldPath::new("spec").child("drivers"), errors);
        }
    }
}
