//! Validation of Pods (`pkg/apis/core/validation`).

pub(super) mod apparmor;
mod container;
mod dns;
mod ephemeral;
mod node_affinity;
mod os;
mod pod_affinity;
mod probe;
mod resize;
mod resource_claims;
mod resources;
pub(super) mod restart_policy;
mod scheduling;
mod security_context;
mod status;
mod stop_signal;
mod topology_spread;
mod update;
mod volume;
mod volume_devices;
mod volume_mounts;

pub(super) use ephemeral::validate_ephemeral_containers_update;
pub(crate) use node_affinity::validate_node_selector;
pub(super) use resize::{prepare_resize, validate_resize};
pub(crate) use resources::{is_native_resource, validate_resource_name};
pub(crate) use scheduling::validate_tolerations;
pub(super) use status::validate_status;
pub(super) use update::validate_update;

use crate::{
    FieldErrors, FieldPath, enums,
    field_cursor::FieldCursor,
    field_validation::{items, text, validate_descending_path, validate_ip},
    object_meta,
};
use serde_json::{Value, json};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Validates a new Pod (`ValidatePodCreate`).
pub(super) fn validate_pod_create(object: &Value, errors: &mut FieldErrors) {
    validate_pod(object, errors);
    let pod = FieldCursor::object(object);
    let spec = pod.at("spec");
    let (ephemeral, node) = (spec.at("ephemeralContainers"), spec.at("nodeName"));
    if ephemeral.count() > 0 {
        ephemeral.forbidden("cannot be set on create", errors);
    }
    if !node.text().is_empty() && spec.at("schedulingGates").count() > 0 {
        node.forbidden("cannot be set until all schedulingGates have been cleared", errors);
    }
    apparmor::validate_annotations_match_fields(object, errors);
    security_context::validate_host_sysctls(&spec, errors);
}

/// Validates a new or updated Pod (`ValidatePod`).
pub(super) fn validate_pod(object: &Value, errors: &mut FieldErrors) {
    apparmor::validate_annotations(object, errors);
    validate_deletion_cost(&object["metadata"]["annotations"], errors);
    let pod = FieldCursor::object(object);
    let spec = pod.at("spec");
    validate_pod_spec(&spec, errors);
    let name = pod.at("metadata").at("name").text();
    volume::validate_ephemeral_claim_names(name, &spec.at("volumes"), errors);
}

/// Validates the spec of a Pod or Pod template (`ValidatePodSpec`).
pub(crate) fn validate_pod_spec(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let volumes = volume::validate_volumes(&spec.at("volumes"), errors);
    resource_claims::validate_pod_claims(&spec.at("resourceClaims"), errors);
    container::validate_containers(spec, &volumes, errors);
    resources::validate_pod_resources(spec, errors);
    validate_overhead(&spec.at("overhead"), errors);
    spec.at("restartPolicy").one_of(enums::RESTART_POLICIES, errors);
    spec.at("dnsPolicy").one_of(enums::DNS_POLICIES, errors);
    object_meta::labels(&spec.at("nodeSelector"), errors);
    security_context::validate_pod_security(spec, errors);
    dns::validate_dns_config(spec, errors);
    scheduling::validate_scheduling(spec, errors);
    for name in ["serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"] {
        let name = spec.at(name);
        if !name.text().is_empty() {
            name.validate_text(api::names::dns1123_subdomain, errors);
        }
    }
    let deadline = spec.at("activeDeadlineSeconds");
    if deadline.integer().is_some_and(|s| !(1..=2_147_483_647).contains(&s)) {
        deadline.invalid("must be between 1 and 2147483647, inclusive", errors);
    }
    for name in [spec.at("hostname"), spec.at("subdomain")] {
        if !name.text().is_empty() {
            name.validate_text(api::names::dns1123_label, errors);
        }
    }
    validate_hostname_override(spec, errors);
    for alias in spec.at("hostAliases").items() {
        validate_ip(&alias.at("ip"), errors);
        let names = alias.at("hostnames");
        names.items().for_each(|name| name.validate_text(api::names::dns1123_subdomain, errors));
    }
    let (preemption, os) = (spec.at("preemptionPolicy"), spec.at("os"));
    if preemption.is_set() {
        preemption.one_of(enums::PREEMPTION_POLICIES, errors);
    }
    if os.is_set() {
        os.at("name").one_of(&["linux", "windows"], errors);
        os::validate_os_fields(spec, errors);
    }
}

/// Validates the Pod deletion cost annotation (KEP-2255).
fn validate_deletion_cost(annotations: &Value, errors: &mut FieldErrors) {
    let Some(cost) = annotations.get(DELETION_COST) else { return };
    // Like `GetDeletionCostFromPodAnnotations`: Go's `ParseInt`, without a plus sign and leading zeros.
    let text = cost.as_str().unwrap_or("");
    if text.parse::<i32>().ok().is_none_or(|n| n.to_string() != text) {
        let path = FieldPath::new("metadata").child("annotations").key(DELETION_COST);
        errors.invalid(&path, cost, "must be a 32bit integer");
    }
}

/// Validates the overhead of a Pod (`validateOverhead`). Like upstream, as the limits of a container, also in the path.
pub(crate) fn validate_overhead(overhead: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if overhead.is_set() {
        let limits = json!({"limits": overhead.value()});
        resources::validate_requirements(&overhead.with_value(&limits), errors);
    }
}

/// Validates `hostnameOverride` (KEP-4762).
fn validate_hostname_override(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let name = spec.at("hostnameOverride");
    if name.is_null() {
        return;
    }
    name.validate_text(api::names::dns1123_subdomain, errors);
    if name.text().len() > 64 {
        name.too_long(64, errors);
    }
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.at(field).is_true() {
            name.forbidden(&format!("may not be specified when {field} is true"), errors);
        }
    }
}
