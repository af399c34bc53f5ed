//! Validation of security contexts (`ValidatePodSecurityContext`, `ValidateSecurityContext`).

use super::{apparmor, validate_descending_path};
use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use serde_json::Value;
use std::collections::BTreeSet;

const MAX_SYSCTL_LENGTH: usize = 253;

/// Validates the Pod's security context and the namespaces that it shares with the node.
pub(super) fn validate_pod_security(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let context = spec.at("securityContext");
    for id in ["fsGroup", "runAsUser", "runAsGroup"] {
        validate_id(&context.at(id), errors);
    }
    context.at("supplementalGroups").items().for_each(|group| validate_id(&group, errors));
    if spec.at("shareProcessNamespace").is_true() && spec.at("hostPID").is_true() {
        let path = context.path().child("shareProcessNamespace");
        errors.invalid(&path, &Value::Bool(true), "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    validate_sysctls(&context.at("sysctls"), errors);
    validate_optional(&context.at("fsGroupChangePolicy"), enums::FS_GROUP_CHANGE_POLICIES, errors);
    validate_optional(&context.at("supplementalGroupsPolicy"), enums::SUPPLEMENTAL_GROUPS_POLICIES, errors);
    // `MountOption` needs the feature gate SELinuxMount, which is disabled.
    validate_optional(&context.at("seLinuxChangePolicy"), &["Recursive"], errors);
    validate_seccomp(&context.at("seccompProfile"), errors);
    apparmor::validate_profile(&context, errors);
    if spec.at("hostUsers").is_false() {
        // Two of upstream's paths start with capital letters.
        for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            let field = spec.at(field).shown_as(shown);
            if field.is_true() {
                field.forbidden("when `pod.Spec.HostUsers` is false", errors);
            }
        }
    }
}

/// Validates the security context of a container (`ValidateSecurityContext`).
pub(super) fn validate_container_security(
    container: &FieldCursor<'_, '_>,
    spec: &FieldCursor<'_, '_>,
    errors: &mut FieldErrors,
) {
    let context = container.at("securityContext");
    validate_id(&context.at("runAsUser"), errors);
    validate_id(&context.at("runAsGroup"), errors);
    let proc_mount = context.at("procMount");
    validate_optional(&proc_mount, enums::PROC_MOUNTS, errors);
    if proc_mount.text() == "Unmasked" && !spec.at("hostUsers").is_false() {
        proc_mount.invalid("`hostUsers` must be false to use `Unmasked`", errors);
    }
    validate_seccomp(&context.at("seccompProfile"), errors);
    apparmor::validate_profile(&context, errors);
    if context.at("allowPrivilegeEscalation").is_false() {
        if context.at("privileged").is_true() {
            context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true", errors);
        }
        if context.at("capabilities").at("add").items().any(|capability| capability.text() == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            context.invalid(detail, errors);
        }
    }
}

/// Validates a user ID or group ID.
fn validate_id(id: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if id.integer().is_some_and(|id| !(0..=2_147_483_647).contains(&id)) {
        id.invalid("must be between 0 and 2147483647, inclusive", errors);
    }
}

/// Validates an optional field with an enumeration of values.
fn validate_optional(field: &FieldCursor<'_, '_>, allowed: &[&str], errors: &mut FieldErrors) {
    if field.is_set() {
        field.supported(allowed, errors);
    }
}

fn validate_sysctls(sysctls: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for sysctl in sysctls.items() {
        let name = sysctl.at("name");
        if name.text().is_empty() {
            name.required("", errors);
        } else if !is_valid_sysctl_name(name.text()) {
            let detail = format!(
                "must have at most {MAX_SYSCTL_LENGTH} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            );
            name.invalid(&detail, errors);
        } else if !seen.insert(name.text()) {
            name.duplicate(errors);
        }
    }
}

/// Forbids sysctls of namespaces that the Pod shares with its node (`ValidateHostSysctl`). Only creates are validated.
pub(super) fn validate_host_sysctls(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for sysctl in spec.at("securityContext").at("sysctls").items() {
        let field = sysctl.at("name");
        let name = field.text().replace('/', ".");
        let is_ipc_sysctl =
            ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| name.starts_with(p)) || name == "kernel.sem";
        for (namespace, shared) in [("hostNetwork", name.starts_with("net.")), ("hostIPC", is_ipc_sysctl)] {
            if shared && spec.at(namespace).is_true() {
                field.invalid(&format!("may not be specified when '{namespace}' is true"), errors);
            }
        }
    }
}

fn is_valid_sysctl_name(name: &str) -> bool {
    let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |part: &str| {
        let b = part.as_bytes();
        matches!((b.first(), b.last()), (Some(f), Some(l)) if is_alphanumeric(*f) && is_alphanumeric(*l))
            && b.iter().all(|c| is_alphanumeric(*c) || matches!(c, b'-' | b'_'))
    };
    name.len() <= MAX_SYSCTL_LENGTH && name.split(['.', '/']).all(segment)
}

fn validate_seccomp(profile: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if profile.is_null() {
        return;
    }
    let (profile_type, file) = (profile.at("type"), profile.at("localhostProfile"));
    match profile_type.text() {
        "" => profile_type.required("type is required when seccompProfile is set", errors),
        _ => profile_type.supported(enums::SECCOMP_PROFILE_TYPES, errors),
    }
    match (profile_type.text() == "Localhost", file.is_set()) {
        (true, false) => file.required("must be set when seccomp type is Localhost", errors),
        (true, true) => validate_descending_path(&file, errors),
        // Upstream shows the profile.
        (false, true) => {
            file.with_value(profile.value()).invalid("can only be set when seccomp type is Localhost", errors);
        }
        (false, false) => {}
    }
}
