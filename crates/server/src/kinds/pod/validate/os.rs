//! What a Pod may not ask of the operating system that it names (`validateLinux`, `validateWindows`).

use super::items;
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::Value;

const FOR_WINDOWS: &str = "windows options cannot be set for a linux pod";
const NOT_FOR_WINDOWS: &str = "cannot be set for a windows pod";
/// Fields of a Pod's security context, and of the spec, in upstream's order.
const OF_PODS: [(&str, &str); 15] = [
    ("securityContext", "appArmorProfile"),
    ("securityContext", "seLinuxOptions"),
    ("", "hostUsers"),
    ("", "hostPID"),
    ("", "hostIPC"),
    ("securityContext", "seccompProfile"),
    ("securityContext", "fsGroup"),
    ("securityContext", "fsGroupChangePolicy"),
    ("securityContext", "sysctls"),
    ("", "shareProcessNamespace"),
    ("securityContext", "runAsUser"),
    ("securityContext", "runAsGroup"),
    ("securityContext", "supplementalGroups"),
    ("securityContext", "supplementalGroupsPolicy"),
    ("securityContext", "seLinuxChangePolicy"),
];
const OF_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

pub(super) fn all(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match spec["os"]["name"].as_str() {
        Some("linux") => linux(spec, path, errors),
        Some("windows") => windows(spec, path, errors),
        _ => {}
    }
}

/// The security contexts of containers of all kinds, with their paths.
fn contexts<'a>(spec: &'a Value, path: &FieldPath) -> Vec<(&'a Value, FieldPath)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].into_iter();
    let each = lists.flat_map(|list| items(spec, list).enumerate().map(move |(i, c)| (list, i, c)));
    each.map(|(list, i, c)| (&c["securityContext"], path.child(list).index(i).child("securityContext"))).collect()
}

fn linux(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let of_pod = (&spec["securityContext"], path.child("securityContext"));
    for (context, path) in std::iter::once(of_pod).chain(contexts(spec, path)) {
        if context.get("windowsOptions").is_some() {
            errors.forbidden(&path.child("windowsOptions"), FOR_WINDOWS);
        }
    }
}

fn windows(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (parent, field) in OF_PODS {
        let (holder, at) = match parent {
            "" => (spec, path.clone()),
            parent => (&spec[parent], path.child(parent)),
        };
        if is_set(holder, field) {
            errors.forbidden(&at.child(field), NOT_FOR_WINDOWS);
        }
    }
    for (context, path) in contexts(spec, path) {
        for field in OF_CONTAINERS.into_iter().filter(|field| context.get(field).is_some()) {
            errors.forbidden(&path.child(field), NOT_FOR_WINDOWS);
        }
    }
}

/// A switch that is off, and a list without elements, say nothing.
fn is_set(holder: &Value, field: &str) -> bool {
    match (field, &holder[field]) {
        (_, Value::Null) => false,
        ("hostPID" | "hostIPC", value) => value == &Value::Bool(true),
        ("sysctls", value) => value.as_array().is_some_and(|list| !list.is_empty()),
        _ => true,
    }
}
