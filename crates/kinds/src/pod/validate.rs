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
    field_validation::{
        items, text, validate_descending_path, validate_dns_label, validate_dns_subdomain, validate_ip,
        validate_one_of, validate_port, validate_qualified_name, validate_required_dns_label,
    },
    object_meta,
};
use serde_json::{Value, json};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Validates a new Pod (`ValidatePodCreate`).
pub(super) fn validate_pod_create(object: &Value, errors: &mut FieldErrors) {
    validate_pod(object, errors);
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    if items(spec, "ephemeralContainers").next().is_some() {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && items(spec, "schedulingGates").next().is_some() {
        errors.forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    apparmor::validate_annotations_match_fields(object, errors);
    security_context::validate_host_sysctls(spec, &path.child("securityContext").child("sysctls"), errors);
}

/// Validates a new or updated Pod (`ValidatePod`).
pub(super) fn validate_pod(object: &Value, errors: &mut FieldErrors) {
    apparmor::validate_annotations(object, errors);
    validate_deletion_cost(&object["metadata"]["annotations"], errors);
    let (path, pod_spec) = (FieldPath::new("spec"), &object["spec"]);
    validate_pod_spec(pod_spec, &path, errors);
    volume::validate_ephemeral_claim_names(text(&object["metadata"], "name"), pod_spec, &path.child("volumes"), errors);
}

/// Validates the spec of a Pod or Pod template (`ValidatePodSpec`).
pub(crate) fn validate_pod_spec(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let volumes = volume::validate_volumes(spec, &path.child("volumes"), errors);
    resource_claims::validate_pod_claims(spec, &path.child("resourceClaims"), errors);
    container::validate_containers(spec, path, &volumes, errors);
    resources::validate_pod_resources(spec, &path.child("resources"), errors);
    let pod_spec = FieldCursor::new(spec, path);
    pod_spec.at("overhead").validate(validate_overhead, errors);
    pod_spec.at("restartPolicy").one_of(enums::RESTART_POLICIES, errors);
    pod_spec.at("dnsPolicy").one_of(enums::DNS_POLICIES, errors);
    pod_spec.at("nodeSelector").validate(object_meta::labels, errors);
    security_context::validate_pod_security(spec, path, errors);
    dns::validate_dns_config(spec, &path.child("dnsConfig"), errors);
    scheduling::validate_scheduling(spec, path, errors);
    for name in ["serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"] {
        let name = pod_spec.at(name);
        if !name.text().is_empty() {
            name.validate(validate_dns_subdomain, errors);
        }
    }
    let deadline = pod_spec.at("activeDeadlineSeconds");
    if deadline.integer().is_some_and(|s| !(1..=2_147_483_647).contains(&s)) {
        deadline.invalid("must be between 1 and 2147483647, inclusive", errors);
    }
    for name in [pod_spec.at("hostname"), pod_spec.at("subdomain")] {
        if !name.text().is_empty() {
            name.validate(validate_dns_label, errors);
        }
    }
    validate_hostname_override(spec, path, errors);
    for alias in pod_spec.at("hostAliases").items() {
        alias.at("ip").validate(validate_ip, errors);
        alias.at("hostnames").items().for_each(|name| name.validate(validate_dns_subdomain, errors));
    }
    let (preemption, os) = (pod_spec.at("preemptionPolicy"), pod_spec.at("os"));
    if preemption.is_set() {
        preemption.one_of(enums::PREEMPTION_POLICIES, errors);
    }
    if os.is_set() {
        os.at("name").one_of(&["linux", "windows"], errors);
        os::validate_os_fields(spec, path, errors);
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
pub(crate) fn validate_overhead(overhead: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    resources::validate_requirements(&json!({"limits": overhead}), path, errors);
}

/// Validates `hostnameOverride` (KEP-4762).
fn validate_hostname_override(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(name) = spec.get("hostnameOverride") else { return };
    let at = path.child("hostnameOverride");
    validate_dns_subdomain(name, &at, errors);
    if name.as_str().is_some_and(|n| n.len() > 64) {
        errors.too_long(&at, 64);
    }
    for field in ["setHostnameAsFQDN", "hostNetwork"].into_iter().filter(|f| spec[f] == json!(true)) {
        errors.forbidden(&at, &format!("may not be specified when {field} is true"));
    }
}
