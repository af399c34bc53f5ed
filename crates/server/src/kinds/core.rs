//! Kinds of the core group that are data: nothing here acts upon them yet.

mod endpoints;
mod limit_range;
mod persistent_volume;
mod persistent_volume_claim;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod transient;

pub(super) use endpoints::ENDPOINTS;
pub(super) use limit_range::LIMIT_RANGE;
pub(super) use persistent_volume::{PERSISTENT_VOLUME, validate_inline};
pub(super) use persistent_volume_claim::{PERSISTENT_VOLUME_CLAIM, default_claim, validate_claim};
pub(super) use pod_template::POD_TEMPLATE;
pub(super) use replication_controller::REPLICATION_CONTROLLER;
pub(super) use resource_quota::RESOURCE_QUOTA;
pub(super) use transient::{BINDING, COMPONENT_STATUS};

use super::{
    FieldErrors, FieldPath,
    checks::{items, text},
    pod::native_resource,
};
use api::quantity::Amount;
use serde_json::{Value, json};

/// How a volume can be had, and how tables show that.
const ACCESS_MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

/// `RWO,ROX`, in this order.
fn access_modes(modes: &Value) -> String {
    let has = |mode: &str| modes.as_array().is_some_and(|all| all.iter().any(|m| m == mode));
    let all: Vec<&str> = ACCESS_MODES.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect();
    all.join(",")
}

/// At least one mode, all of them known, and the one of a single Pod alone.
fn check_access_modes(spec: &Value, path: &FieldPath, why: &str, errors: &mut FieldErrors) {
    let at = path.child("accessModes");
    if items(spec, "accessModes").next().is_none() {
        errors.required(&at, why);
    }
    for mode in items(spec, "accessModes") {
        if !ACCESS_MODES.iter().any(|(known, _)| mode == known) {
            let mut supported: Vec<&str> = ACCESS_MODES.iter().map(|(known, _)| *known).collect();
            supported.sort_unstable();
            errors.not_supported(&at, mode, &supported);
        }
    }
    let alone = items(spec, "accessModes").any(|m| m == "ReadWriteOncePod");
    if alone && items(spec, "accessModes").count() > 1 {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// The annotation that said the storage class before there was a field, and what users of it are told.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const CLASS_IS_FIELD: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";

/// Warns of an annotation that is there and has become a field.
fn old_annotation(object: &Value, name: &str, why: &str) -> Vec<String> {
    let is_there = !object["metadata"]["annotations"][name].is_null();
    is_there.then(|| format!("metadata.annotations[{name}]: {why}")).into_iter().collect()
}

/// The storage class of a volume or a claim, which an annotation said before there was a field.
pub(crate) fn storage_class(object: &Value) -> String {
    let old = &object["metadata"]["annotations"][OLD_CLASS];
    old.as_str().unwrap_or_else(|| text(&object["spec"], "storageClassName")).to_owned()
}

/// What is counted, and not measured.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// An amount of a resource, in whole numbers where it is counted (`ValidateResourceQuantityValue`).
pub(super) fn amount(name: &str, quantity: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if is_negative(quantity) {
        errors.invalid(path, quantity, "must be greater than or equal to 0");
    }
    let whole = COUNTED.contains(&name) || !native_resource(name) && !name.starts_with("requests.");
    let amount = quantity.as_str().and_then(|q| Amount::parse(q).ok()).unwrap_or_default();
    if whole && amount.milli() % 1000 != 0 {
        errors.invalid(path, quantity, "must be an integer");
    }
}

fn is_negative(quantity: &Value) -> bool {
    quantity.as_str().and_then(|q| Amount::parse(q).ok()).is_some_and(Amount::is_negative)
}

/// A size that must be above zero.
fn check_positive(quantity: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let amount = quantity.as_str().and_then(|q| Amount::parse(q).ok()).unwrap_or_default();
    if amount.is_negative() || amount.is_zero() {
        let shown = if quantity.is_null() { json!("0") } else { quantity.clone() };
        errors.invalid(path, &shown, "must be greater than zero");
    }
}
