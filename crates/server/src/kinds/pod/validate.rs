//! What a Pod's spec may say, in upstream's words (`pkg/apis/core/validation`).

pub(super) mod apparmor;
mod claims;
mod container;
mod devices;
mod dns;
mod ephemeral;
mod mounts;
mod node_affinity;
mod os;
mod pod_affinity;
mod probe;
mod resize;
mod resources;
pub(super) mod restart;
mod scheduling;
mod security;
mod spread;
mod status;
mod stop_signal;
mod update;
mod volume;

pub(super) use ephemeral::update as ephemeral_update;
pub(in crate::kinds) use node_affinity::selector as node_selector;
pub(super) use resize::{prepare as prepare_resize, resize};
pub(in crate::kinds) use resources::{native as native_resource, resource_name};
pub(in crate::kinds) use scheduling::tolerations;
pub(super) use status::status;
pub(super) use update::update;

use crate::{
    kinds::{
        FieldErrors, FieldPath,
        checks::{
            descending_path, dns_label, ip, items, not_negative, one_of, port, qualified, required_label, subdomain,
            text,
        },
    },
    object_meta,
};
use serde_json::{Value, json};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A new Pod.
pub(super) fn create(object: &Value, errors: &mut FieldErrors) {
    pod(object, errors);
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    if items(spec, "ephemeralContainers").next().is_some() {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && items(spec, "schedulingGates").next().is_some() {
        errors.forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    apparmor::matching(object, errors);
    security::sysctls_of_the_node(spec, &path.child("securityContext").child("sysctls"), errors);
}

/// What holds for every Pod, new or changed.
pub(super) fn pod(object: &Value, errors: &mut FieldErrors) {
    apparmor::of_annotations(object, errors);
    deletion_cost(&object["metadata"]["annotations"], errors);
    let (path, of) = (FieldPath::new("spec"), &object["spec"]);
    spec(of, &path, errors);
    volume::claims_to_be_made(text(&object["metadata"], "name"), of, &path.child("volumes"), errors);
}

/// The spec of a Pod, or of a template of Pods (`ValidatePodSpec`).
pub(in crate::kinds) fn spec(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let volumes = volume::all(spec, &path.child("volumes"), errors);
    claims::of_pod(spec, &path.child("resourceClaims"), errors);
    container::all(spec, path, &volumes, errors);
    resources::pod(spec, &path.child("resources"), errors);
    overhead(&spec["overhead"], &path.child("overhead"), errors);
    one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    one_of(spec, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], path, errors);
    object_meta::labels(&spec["nodeSelector"], &path.child("nodeSelector"), errors);
    security::of_pod(spec, path, errors);
    dns::config(spec, &path.child("dnsConfig"), errors);
    scheduling::all(spec, path, errors);
    for name in ["serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"] {
        if !text(spec, name).is_empty() {
            subdomain(&spec[name], &path.child(name), errors);
        }
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64().filter(|s| !(1..=2_147_483_647).contains(s)) {
        let path = path.child("activeDeadlineSeconds");
        errors.invalid(&path, &json!(seconds), "must be between 1 and 2147483647, inclusive");
    }
    for name in ["hostname", "subdomain"] {
        if !text(spec, name).is_empty() {
            dns_label(&spec[name], &path.child(name), errors);
        }
    }
    hostname_override(spec, path, errors);
    for (i, alias) in items(spec, "hostAliases").enumerate() {
        let path = path.child("hostAliases").index(i);
        ip(&alias["ip"], &path.child("ip"), errors);
        for (j, name) in items(alias, "hostnames").enumerate() {
            subdomain(name, &path.child("hostnames").index(j), errors);
        }
    }
    if spec.get("preemptionPolicy").is_some() {
        one_of(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], path, errors);
    }
    if let Some(os) = spec.get("os") {
        one_of(os, "name", &["linux", "windows"], &path.child("os"), errors);
        os::all(spec, path, errors);
    }
}

/// What a ReplicaSet would rather delete.
fn deletion_cost(annotations: &Value, errors: &mut FieldErrors) {
    let Some(cost) = annotations.get(DELETION_COST) else { return };
    // As Go's ParseInt, without a plus and without leading zeros.
    let text = cost.as_str().unwrap_or("");
    if text.parse::<i32>().ok().is_none_or(|n| n.to_string() != text) {
        let path = FieldPath::new("metadata").child("annotations").key(DELETION_COST);
        errors.invalid(&path, cost, "must be a 32bit integer");
    }
}

/// What it costs to run a Pod, beside its containers (`validateOverhead`: limits of a container, in upstream's path, too).
pub(in crate::kinds) fn overhead(overhead: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    resources::requirements(&json!({"limits": overhead}), path, errors);
}

/// A host name of any form, for those that need no other (KEP-4762).
fn hostname_override(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(name) = spec.get("hostnameOverride") else { return };
    let at = path.child("hostnameOverride");
    subdomain(name, &at, errors);
    if name.as_str().is_some_and(|n| n.len() > 64) {
        errors.too_long(&at, 64);
    }
    for field in ["setHostnameAsFQDN", "hostNetwork"].into_iter().filter(|f| spec[f] == json!(true)) {
        errors.forbidden(&at, &format!("may not be specified when {field} is true"));
    }
}
