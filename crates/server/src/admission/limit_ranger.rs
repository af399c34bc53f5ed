//! The `LimitRanger` admission plugin.

use super::plugin::{AdmittedWrite, Plugin};
use ::admission::{
    Aggregate,
    limit_range::{self, LimitError},
};
use auth::stored_object;
use errors::ApiError;
use k8s_openapi::api::core::v1::{LimitRange, Pod};
use kinds::KindInfo;
use serde_json::{Value, json};
use store::{Scope, Store};

/// Sets default requests and limits, and checks the limits of the namespace.
pub(super) struct LimitRanger;

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        if write.creates("", "Pod") {
            admit(&write.control.store, &write.resource.namespace, object);
        }
        Ok(())
    }

    fn validate(&self, write: &AdmittedWrite<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        // Terminating objects are not limited. Of the updates of a Pod, only a resize changes its resources.
        let is_resize = write.resource.subresource.as_deref() == Some("resize");
        let is_limited = (write.is_of("", "Pod") && (write.old.is_none() || is_resize))
            || (write.is_of("", "PersistentVolumeClaim") && write.is_main());
        if is_limited && write.old.is_none_or(|old| old["metadata"]["deletionTimestamp"].is_null()) {
            let resource = write.resource;
            let validated = validate(&write.control.store, resource.kind.info(), &resource.namespace, object);
            validated.map_err(|error| write.forbidden(object, &error))?;
        }
        Ok(Vec::new())
    }
}

/// Returns the LimitRanges of a namespace.
fn limit_ranges(store: &Store, namespace: &str) -> Vec<LimitRange> {
    stored_object::list(store, &Scope::resource("limitranges").in_namespace(namespace)).collect()
}

/// Sets the default requests and limits of a new Pod.
pub(super) fn admit(store: &Store, namespace: &str, object: &mut Value) {
    let ranges = limit_ranges(store, namespace);
    if ranges.is_empty() {
        return;
    }
    // Validation rejects an object that cannot be decoded.
    let Ok(mut pod) = decode::from_value::<Pod>(object) else { return };
    let original = pod.clone();
    for range in &ranges {
        limit_range::set_defaults(range, &mut pod);
    }
    if pod == original {
        return;
    }
    // Copies only the changed fields, so that fields that the typed Pod does not have are kept.
    object["metadata"]["annotations"] = json!(pod.metadata.annotations);
    let spec = pod.spec.unwrap_or_default();
    let lists = [("containers", spec.containers), ("initContainers", spec.init_containers.unwrap_or_default())];
    for (list, containers) in lists {
        let values = object["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (value, container) in values.zip(containers) {
            value["resources"] = json!(container.resources);
        }
    }
}

/// Checks a Pod or PersistentVolumeClaim against the limits of its namespace. Validation rejects an object that cannot be
/// decoded.
pub(super) fn validate(
    store: &Store,
    info: &KindInfo,
    namespace: &str,
    object: &Value,
) -> Result<(), Aggregate<LimitError>> {
    let ranges = limit_ranges(store, namespace);
    if ranges.is_empty() {
        return Ok(());
    }
    if info.kind == "Pod" {
        let pod = decode::from_value(object);
        return pod.map_or(Ok(()), |pod| ranges.iter().try_for_each(|range| limit_range::check_pod(range, &pod)));
    }
    let claim = decode::from_value(object);
    claim.map_or(Ok(()), |claim| ranges.iter().try_for_each(|range| limit_range::check_claim(range, &claim)))
}
