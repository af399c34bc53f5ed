//! Validation of fields that the Pod's operating system does not support (`validateLinux`, `validateWindows`).

use crate::{FieldErrors, field_cursor::FieldCursor};

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

pub(super) fn validate_os_fields(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    match spec.at("os").at("name").text() {
        "linux" => validate_linux(spec, errors),
        "windows" => validate_windows(spec, errors),
        _ => {}
    }
}

/// Calls a function with the security contexts of all containers.
fn for_each_container_context(spec: &FieldCursor<'_, '_>, mut validate: impl FnMut(&FieldCursor<'_, '_>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        spec.at(list).items().for_each(|container| validate(&container.at("securityContext")));
    }
}

fn validate_linux(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut validate = |context: &FieldCursor<'_, '_>| {
        let options = context.at("windowsOptions");
        if options.is_set() {
            options.forbidden(LINUX_POD_MESSAGE, errors);
        }
    };
    validate(&spec.at("securityContext"));
    for_each_container_context(spec, validate);
}

fn validate_windows(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for (parent, name) in LINUX_POD_FIELDS {
        let holder = if parent.is_empty() { *spec } else { spec.at(parent) };
        let field = holder.at(name);
        if is_set(name, &field) {
            field.forbidden(WINDOWS_POD_MESSAGE, errors);
        }
    }
    for_each_container_context(spec, |context| {
        for name in LINUX_CONTAINER_FIELDS {
            let field = context.at(name);
            if field.is_set() {
                field.forbidden(WINDOWS_POD_MESSAGE, errors);
            }
        }
    });
}

/// Whether a field is set. False and an empty list count as unset for some fields.
fn is_set(name: &str, field: &FieldCursor<'_, '_>) -> bool {
    match name {
        "hostPID" | "hostIPC" => field.is_true(),
        "sysctls" => field.count() > 0,
        _ => field.is_set(),
    }
}
