//! Validation of fields that the Pod's operating system does not support (`validateLinux`, `validateWindows`).

use super::items;
use crate::{FieldErrors, FieldPath};
use serde_json::Value;

const LINUX_POD_MESSAGE: &str = "windows options cannot be set for a linux pod";
const WINDOWS_POD_MESSAGE: &str = "cannot be set for a windows pod";
/// Linux-only fields of a Pod's security context and spec, in upstream's order.
const LINUX_POD_FIELDS: [(&str, &str); 15] = [
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
const LINUX_CONTAINER_FIELDS: [&str; 10] = [
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

pub(super) fn validate_os_fields(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match spec["os"]["name"].as_str() {
        Some("linux") => validate_linux(spec, path, errors),
        Some("windows") => validate_windows(spec, path, errors),
        _ => {}
    }
}

/// Returns the security contexts of all containers, with their paths.
fn container_security_contexts<'a>(spec: &'a Value, path: &FieldPath) -> Vec<(&'a Value, FieldPath)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].into_iter();
    let each = lists.flat_map(|list| items(spec, list).enumerate().map(move |(i, c)| (list, i, c)));
    each.map(|(list, i, c)| (&c["securityContext"], path.child(list).index(i).child("securityContext"))).collect()
}

fn validate_linux(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let of_pod = (&spec["securityContext"], path.child("securityContext"));
    for (context, path) in std::iter::once(of_pod).chain(container_security_contexts(spec, path)) {
        if context.get("windowsOptions").is_some() {
            errors.forbidden(&path.child("windowsOptions"), LINUX_POD_MESSAGE);
        }
    }
}

fn validate_windows(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (parent, field) in LINUX_POD_FIELDS {
        let (holder, at) = match parent {
            "" => (spec, path.clone()),
            parent => (&spec[parent], path.child(parent)),
        };
        if is_set(holder, field) {
            errors.forbidden(&at.child(field), WINDOWS_POD_MESSAGE);
        }
    }
    for (context, path) in container_security_contexts(spec, path) {
        for field in LINUX_CONTAINER_FIELDS.into_iter().filter(|field| context.get(field).is_some()) {
            errors.forbidden(&path.child(field), WINDOWS_POD_MESSAGE);
        }
    }
}

/// Whether a field is set. False and an empty list count as unset for some fields.
fn is_set(holder: &Value, field: &str) -> bool {
    match (field, &holder[field]) {
        (_, Value::Null) => false,
        ("hostPID" | "hostIPC", value) => value == &Value::Bool(true),
        ("sysctls", value) => value.as_array().is_some_and(|list| !list.is_empty()),
        _ => true,
    }
}
