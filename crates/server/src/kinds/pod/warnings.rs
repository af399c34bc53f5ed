//! What upstream warns of in a Pod or a template of Pods, though it takes it (`pkg/api/pod/warnings.go`).

mod affinity;
mod ports;
mod volumes;

pub(in crate::kinds) use volumes::{claim, gone};

use crate::kinds::{
    FieldPath,
    checks::{items, text},
};
use api::{address, quantity::Amount};
use serde_json::Value;
use std::collections::HashSet;

/// The lists of containers of a Pod, in upstream's order.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// How often ports, or files of a volume, are compared in pairs. Warnings are cut at 4,096 letters anyway, and n ports can
/// clash in n² pairs.
const MAX_COMPARISONS: usize = 100_000;
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";

/// Annotations that nobody reads any more.
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

/// Of a new Pod.
pub(super) fn pod(object: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let wrong = api::names::dns1123_label(text(&object["metadata"], "name"));
    if !wrong.is_empty() {
        all.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    spec_and_metadata(object, &FieldPath::default(), &mut all);
    all
}

/// Of a template at this place.
pub(in crate::kinds) fn template(template: &Value, path: &FieldPath) -> Vec<String> {
    let mut all = Vec::new();
    spec_and_metadata(template, path, &mut all);
    // Of Pods it is told where their annotations become fields.
    let spec = &template["spec"];
    let confined = |of: &Value| !of["securityContext"]["appArmorProfile"].is_null();
    for c in containers(spec).map(|(_, _, c)| c).filter(|c| !confined(spec) && !confined(c)) {
        let why = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
        annotation(template, &[APPARMOR, text(c, "name")].concat(), why, path, &mut all);
    }
    all
}

fn spec_and_metadata(object: &Value, path: &FieldPath, all: &mut Vec<String>) {
    let (spec, at) = (&object["spec"], path.child("spec"));
    affinity::node_labels(spec, &at, all);
    for (name, why) in OLD_ANNOTATIONS {
        annotation(object, name, why, path, all);
    }
    volumes::volumes(spec, &at, all);
    names_and_addresses(spec, &at, all);
    bytes(&spec["overhead"], &["memory", "ephemeral-storage"], &at.child("overhead"), all);
    seccomp(object, path, all);
    for (list, i, c) in containers(spec) {
        container(c, &at.child(list).index(i), all);
    }
    ports::ports(spec, &at, all);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        all.push(format!("{}: {why}", at.child("terminationGracePeriodSeconds")));
    }
    affinity::null_selectors(spec, &at.child("affinity"), all);
}

/// All containers, each with its list and its place there.
fn containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    CONTAINERS.into_iter().flat_map(|list| items(spec, list).enumerate().map(move |(i, c)| (list, i, c)))
}

/// Warns of an annotation, if it is there.
fn annotation(object: &Value, name: &str, why: &str, path: &FieldPath, all: &mut Vec<String>) {
    let metadata = &object["metadata"];
    if !metadata["annotations"][name].is_null() {
        all.push(format!("{}: {why}", path.child("metadata").child("annotations").key(name)));
    }
}

fn seccomp(object: &Value, path: &FieldPath, all: &mut Vec<String>) {
    let (spec, why) = (&object["spec"], "non-functional in v1.27+; use the \"seccompProfile\" field instead");
    let says_nothing = |of: &Value| of["securityContext"]["seccompProfile"].is_null();
    if says_nothing(spec) {
        annotation(object, SECCOMP_OF_POD, why, path, all);
    }
    for (_, _, c) in containers(spec).filter(|(_, _, c)| says_nothing(c)) {
        annotation(object, &[SECCOMP, text(c, "name")].concat(), why, path, all);
    }
}

/// Host aliases, secrets to pull images with, name servers.
fn names_and_addresses(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (i, ip) in items(spec, "hostAliases").map(|alias| text(alias, "ip")).enumerate() {
        let at = path.child("hostAliases").index(i).child("ip");
        if !seen.insert(ip) {
            all.push(format!("{at}: duplicate ip {ip:?}"));
        }
        all.extend(address::ip_warning(ip, &at));
    }
    seen.clear();
    for (i, name) in items(spec, "imagePullSecrets").map(|secret| text(secret, "name")).enumerate() {
        let at = || path.child("imagePullSecrets").index(i).child("name");
        if !seen.insert(name) {
            all.push(format!("{}: duplicate name {name:?}", at()));
        }
        if name.is_empty() {
            all.push(format!("{}: invalid empty name {name:?}", at()));
        }
    }
    for (i, ip) in items(&spec["dnsConfig"], "nameservers").filter_map(Value::as_str).enumerate() {
        all.extend(address::ip_warning(ip, &path.child("dnsConfig").child("nameservers").index(i)));
    }
}

/// Amounts of bytes that are no whole ones.
fn bytes(amounts: &Value, names: &[&str], path: &FieldPath, all: &mut Vec<String>) {
    for name in names {
        let value = text(amounts, name);
        if Amount::parse(value).is_ok_and(|a| a.milli() % 1000 != 0) {
            all.push(format!("{}: fractional byte value {value:?} is invalid, must be an integer", path.key(name)));
        }
    }
}

fn container(c: &Value, path: &FieldPath, all: &mut Vec<String>) {
    for side in ["limits", "requests"] {
        bytes(&c["resources"][side], &["memory", "ephemeral-storage"], &path.child("resources").child(side), all);
    }
    let mut seen = HashSet::new();
    for (i, variable) in items(c, "env").enumerate() {
        let name = text(variable, "name");
        let earlier = format!("$({name})");
        let value = text(variable, "value");
        // A value that adds to the earlier one of its name is meant.
        let adds = variable["valueFrom"].is_null() && value != earlier && value.contains(&earlier);
        if !seen.insert(name) && !adds {
            let why = "which may be dropped when using apply";
            all.push(format!("{}: hides previous definition of {name:?}, {why}", path.child("env").index(i)));
        }
    }
}

#[cfg(test)]
mod tests;
