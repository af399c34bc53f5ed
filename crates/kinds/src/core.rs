//! Kinds of the core group that are described by data ([`super::generic_kind::GenericKind`]).

mod endpoints;
mod limit_range;
mod persistent_volume;
mod persistent_volume_claim;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod unstored;

pub(super) use endpoints::ENDPOINTS;
pub(super) use limit_range::LIMIT_RANGE;
pub(super) use persistent_volume::{PERSISTENT_VOLUME, validate_inline};
pub(super) use persistent_volume_claim::{PERSISTENT_VOLUME_CLAIM, set_claim_defaults, validate_claim_spec};
pub(super) use pod_template::POD_TEMPLATE;
pub(super) use replication_controller::REPLICATION_CONTROLLER;
pub(super) use resource_quota::RESOURCE_QUOTA;
pub(super) use unstored::{BINDING, COMPONENT_STATUS};

use super::{
    FieldErrors, enums,
    field_cursor::FieldCursor,
    field_validation::{text, validate_nonnegative_quantity},
    pod::is_native_resource,
};
use api::quantity::Amount;
use serde_json::Value;

/// Access modes of volumes with their abbreviations in tables.
const ACCESS_MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

/// Formats access modes, for example `RWO,ROX` (`GetAccessModesAsString`).
fn format_access_modes(modes: &Value) -> String {
    let has = |mode: &str| modes.as_array().is_some_and(|all| all.iter().any(|m| m == mode));
    let all: Vec<&str> = ACCESS_MODES.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect();
    all.join(",")
}

/// Validates access modes: at least one, only known ones, and `ReadWriteOncePod` not with others.
fn validate_access_modes(modes: &FieldCursor<'_, '_>, detail: &str, errors: &mut FieldErrors) {
    if modes.count() == 0 {
        modes.required(detail, errors);
    }
    for mode in modes.items() {
        // Upstream's path lacks the index.
        modes.with_value(mode.value()).supported(enums::ACCESS_MODES, errors);
    }
    if modes.count() > 1 && modes.items().any(|mode| mode.text() == "ReadWriteOncePod") {
        modes.forbidden("may not use ReadWriteOncePod with other access modes", errors);
    }
}

/// Deprecated annotation of the storage class, and its warning.
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const STORAGE_CLASS_ANNOTATION_WARNING: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";

/// Warns of a deprecated annotation, if it is set.
fn deprecated_annotation_warnings(object: &Value, name: &str, detail: &str) -> Vec<String> {
    let is_set = !object["metadata"]["annotations"][name].is_null();
    is_set.then(|| format!("metadata.annotations[{name}]: {detail}")).into_iter().collect()
}

/// Returns the storage class of a volume or claim, from the deprecated annotation or the field
/// (`GetPersistentVolumeClass`).
pub fn storage_class(object: &Value) -> String {
    let old = &object["metadata"]["annotations"][STORAGE_CLASS_ANNOTATION];
    old.as_str().unwrap_or_else(|| text(&object["spec"], "storageClassName")).to_owned()
}

/// Resources with integer quantities.
const INTEGER_RESOURCES: [&str; 9] = [
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

/// Validates a resource quantity, which must be an integer for some resources (`ValidateResourceQuantityValue`).
pub(super) fn validate_resource_quantity(name: &str, quantity: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_nonnegative_quantity(quantity, errors);
    let is_integer = INTEGER_RESOURCES.contains(&name) || !is_native_resource(name) && !name.starts_with("requests.");
    if is_integer && Amount::parse(quantity.text()).unwrap_or_default().milli() % 1000 != 0 {
        quantity.invalid("must be an integer", errors);
    }
}

/// Validates that a quantity is greater than zero (`ValidatePositiveQuantityValue`).
fn validate_positive_quantity(quantity: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let amount = Amount::parse(quantity.text()).unwrap_or_default();
    if amount.is_negative() || amount.is_zero() {
        quantity.invalid("must be greater than zero", errors);
    }
}
