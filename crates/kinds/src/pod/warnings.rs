//! Warnings for Pods and Pod templates (`pkg/api/pod/warnings.go`).

mod affinity;
mod ports;
mod volumes;

pub(crate) use volumes::{warn_claim, warn_removed_plugins};

use crate::{
    FieldPath,
    field_validation::{items, text},
};
use api::{address, quantity::Amount};
use serde_json::Value;
use std::collections::HashSet;

/// The container lists of a Pod, in upstream's order.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// Maximum number of pairwise comparisons of ports, or of files of a volume. n ports can have n² conflicts, and warnings are
/// truncated at 4,096 characters anyway.
const MAX_COMPARISONS: usize = 100_000;
const APPARMOR_ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_ANNOTATION_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";

/// Non-functional annotations with their warnings.
const NON_FUNCTIONAL_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

/// Returns the warnings for a new Pod (`GetWarningsForPod`).
pub(super) fn pod_warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = api::names::dns1123_label(text(&object["metadata"], "name"));
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    warn_spec_and_metadata(object, &FieldPath::default(), &mut warnings);
    warnings
}

/// Returns the warnings for a Pod template at a path (`GetWarningsForPodTemplate`).
pub(crate) fn template_warnings(template: &Value, path: &FieldPath) -> Vec<String> {
    let mut warnings = Vec::new();
    warn_spec_and_metadata(template, path, &mut warnings);
    // Only for templates: a Pod's annotations are converted to fields.
    let spec = &template["spec"];
    let has_profile = |object: &Value| !object["securityContext"]["appArmorProfile"].is_null();
    for c in containers(spec).map(|(_, _, c)| c).filter(|c| !has_profile(spec) && !has_profile(c)) {
        let detail = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
        warn_annotation(template, &[APPARMOR_ANNOTATION_PREFIX, text(c, "name")].concat(), detail, path, &mut warnings);
    }
    warnings
}

fn warn_spec_and_metadata(object: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    let (spec, at) = (&object["spec"], path.child("spec"));
    affinity::warn_deprecated_node_labels(spec, &at, warnings);
    for (name, detail) in NON_FUNCTIONAL_ANNOTATIONS {
        warn_annotation(object, name, detail, path, warnings);
    }
    volumes::warn_volumes(spec, &at, warnings);
    warn_names_and_addresses(spec, &at, warnings);
    warn_fractional_bytes(&spec["overhead"], &["memory", "ephemeral-storage"], &at.child("overhead"), warnings);
    warn_seccomp(object, path, warnings);
    for (list, i, c) in containers(spec) {
        warn_container(c, &at.child(list).index(i), warnings);
    }
    ports::warn_port_conflicts(spec, &at, warnings);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        let detail = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{}: {detail}", at.child("terminationGracePeriodSeconds")));
    }
    affinity::warn_null_selectors(spec, &at.child("affinity"), warnings);
}

/// Returns all containers, each with its list and index.
fn containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    CONTAINER_LISTS.into_iter().flat_map(|list| items(spec, list).enumerate().map(move |(i, c)| (list, i, c)))
}

/// Warns of an annotation, if it is set.
fn warn_annotation(object: &Value, name: &str, detail: &str, path: &FieldPath, warnings: &mut Vec<String>) {
    let metadata = &object["metadata"];
    if !metadata["annotations"][name].is_null() {
        warnings.push(format!("{}: {detail}", path.child("metadata").child("annotations").key(name)));
    }
}

fn warn_seccomp(object: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    let (spec, detail) = (&object["spec"], "non-functional in v1.27+; use the \"seccompProfile\" field instead");
    let has_no_profile = |object: &Value| object["securityContext"]["seccompProfile"].is_null();
    if has_no_profile(spec) {
        warn_annotation(object, SECCOMP_POD_ANNOTATION, detail, path, warnings);
    }
    for (_, _, c) in containers(spec).filter(|(_, _, c)| has_no_profile(c)) {
        warn_annotation(object, &[SECCOMP_ANNOTATION_PREFIX, text(c, "name")].concat(), detail, path, warnings);
    }
}

/// Warns of duplicate or non-standard host aliases, image pull secrets and name servers.
fn warn_names_and_addresses(spec: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (i, ip) in items(spec, "hostAliases").map(|alias| text(alias, "ip")).enumerate() {
        let at = path.child("hostAliases").index(i).child("ip");
        if !seen.insert(ip) {
            warnings.push(format!("{at}: duplicate ip {ip:?}"));
        }
        warnings.extend(address::ip_warning(ip, &at));
    }
    seen.clear();
    for (i, name) in items(spec, "imagePullSecrets").map(|secret| text(secret, "name")).enumerate() {
        let at = || path.child("imagePullSecrets").index(i).child("name");
        if !seen.insert(name) {
            warnings.push(format!("{}: duplicate name {name:?}", at()));
        }
        if name.is_empty() {
            warnings.push(format!("{}: invalid empty name {name:?}", at()));
        }
    }
    for (i, ip) in items(&spec["dnsConfig"], "nameservers").filter_map(Value::as_str).enumerate() {
        warnings.extend(address::ip_warning(ip, &path.child("dnsConfig").child("nameservers").index(i)));
    }
}

/// Warns of quantities of bytes that are not integers.
fn warn_fractional_bytes(amounts: &Value, names: &[&str], path: &FieldPath, warnings: &mut Vec<String>) {
    for name in names {
        let value = text(amounts, name);
        if Amount::parse(value).is_ok_and(|a| a.milli() % 1000 != 0) {
            warnings
                .push(format!("{}: fractional byte value {value:?} is invalid, must be an integer", path.key(name)));
        }
    }
}

fn warn_container(c: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    for side in ["limits", "requests"] {
        warn_fractional_bytes(
            &c["resources"][side],
            &["memory", "ephemeral-storage"],
            &path.child("resources").child(side),
            warnings,
        );
    }
    let mut seen = HashSet::new();
    for (i, variable) in items(c, "env").enumerate() {
        let name = text(variable, "name");
        let earlier = format!("$({name})");
        let value = text(variable, "value");
        // A value that extends the earlier definition of the variable is intended.
        let adds = variable["valueFrom"].is_null() && value != earlier && value.contains(&earlier);
        if !seen.insert(name) && !adds {
            let detail = "which may be dropped when using apply";
            warnings.push(format!("{}: hides previous definition of {name:?}, {detail}", path.child("env").index(i)));
        }
    }
}

#[cfg(test)]
mod tests;
