//! Validation of security contexts (`ValidatePodSecurityContext`, `ValidateSecurityContext`).

use super::{apparmor, items, text, validate_descending_path};
use crate::{FieldErrors, FieldPath, enums};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MAX_SYSCTL_LENGTH: usize = 253;

/// Validates the Pod's security context and the namespaces that it shares with the node.
pub(super) fn validate_pod_security(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (context, at) = (&spec["securityContext"], path.child("securityContext"));
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        validate_id(&context[field], &at.child(field), errors);
    }
    for (i, group) in items(context, "supplementalGroups").enumerate() {
        validate_id(group, &at.child("supplementalGroups").index(i), errors);
    }
    let on = |field: &str| spec[field] == json!(true);
    if on("shareProcessNamespace") && on("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&at.child("shareProcessNamespace"), &json!(true), detail);
    }
    validate_sysctls(context, &at.child("sysctls"), errors);
    validate_optional(context, "fsGroupChangePolicy", enums::FS_GROUP_CHANGE_POLICIES, &at, errors);
    validate_optional(context, "supplementalGroupsPolicy", enums::SUPPLEMENTAL_GROUPS_POLICIES, &at, errors);
    // `MountOption` needs the feature gate SELinuxMount, which is disabled.
    validate_optional(context, "seLinuxChangePolicy", &["Recursive"], &at, errors);
    validate_seccomp(context, &at.child("seccompProfile"), errors);
    apparmor::validate_profile(context, &at, errors);
    if spec["hostUsers"] == json!(false) {
        // Two of upstream's paths start with capital letters.
        for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if on(field) {
                errors.forbidden(&path.child(shown), "when `pod.Spec.HostUsers` is false");
            }
        }
    }
}

/// Validates the security context of a container (`ValidateSecurityContext`).
pub(super) fn validate_container_security(c: &Value, spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (context, path) = (&c["securityContext"], path.child("securityContext"));
    for field in ["runAsUser", "runAsGroup"] {
        validate_id(&context[field], &path.child(field), errors);
    }
    validate_optional(context, "procMount", enums::PROC_MOUNTS, &path, errors);
    if context["procMount"] == "Unmasked" && spec["hostUsers"] != json!(false) {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&path.child("procMount"), &context["procMount"], detail);
    }
    validate_seccomp(context, &path.child("seccompProfile"), errors);
    apparmor::validate_profile(context, &path, errors);
    if context["allowPrivilegeEscalation"] == json!(false) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and ";
        if context["privileged"] == json!(true) {
            errors.invalid(&path, context, &format!("{detail}`privileged` to true"));
        }
        if items(&context["capabilities"], "add").any(|c| c == "CAP_SYS_ADMIN") {
            errors.invalid(&path, context, &format!("{detail}`capabilities.Add` CAP_SYS_ADMIN"));
        }
    }
}

/// Validates a user ID or group ID.
fn validate_id(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if value.as_i64().is_some_and(|id| !(0..=2_147_483_647).contains(&id)) {
        errors.invalid(path, value, "must be between 0 and 2147483647, inclusive");
    }
}

/// Validates an optional field with an enumeration of values.
fn validate_optional(v: &Value, key: &str, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    if v.get(key).is_some_and(|value| !value.as_str().is_some_and(|s| allowed.contains(&s))) {
        errors.not_supported(&path.child(key), &v[key], allowed);
    }
}

fn validate_sysctls(context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, sysctl) in items(context, "sysctls").enumerate() {
        let (path, name) = (path.index(i).child("name"), text(sysctl, "name"));
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_valid_sysctl_name(name) {
            let detail = format!(
                "must have at most {MAX_SYSCTL_LENGTH} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            );
            errors.invalid(&path, &sysctl["name"], &detail);
        } else if !seen.insert(name) {
            errors.duplicate(&path, &sysctl["name"]);
        }
    }
}

/// Forbids sysctls of namespaces that the Pod shares with its node (`ValidateHostSysctl`). Only creates are validated.
pub(super) fn validate_host_sysctls(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, sysctl) in items(&spec["securityContext"], "sysctls").enumerate() {
        let name = text(sysctl, "name").replace('/', ".");
        let is_ipc_sysctl =
            ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| name.starts_with(p)) || name == "kernel.sem";
        for (field, shared) in [("hostNetwork", name.starts_with("net.")), ("hostIPC", is_ipc_sysctl)] {
            if shared && spec[field] == json!(true) {
                let detail = format!("may not be specified when '{field}' is true");
                errors.invalid(&path.index(i).child("name"), &sysctl["name"], &detail);
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

fn validate_seccomp(context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(profile) = context.get("seccompProfile").filter(|p| p.is_object()) else { return };
    match text(profile, "type") {
        "" => errors.required(&path.child("type"), "type is required when seccompProfile is set"),
        kind if enums::SECCOMP_PROFILE_TYPES.contains(&kind) => {}
        _ => errors.not_supported(&path.child("type"), &profile["type"], enums::SECCOMP_PROFILE_TYPES),
    }
    let (file, path) = (profile.get("localhostProfile"), path.child("localhostProfile"));
    match (text(profile, "type") == "Localhost", file) {
        (true, None) => errors.required(&path, "must be set when seccomp type is Localhost"),
        (true, Some(file)) => validate_descending_path(file, &path, errors),
        (false, Some(_)) => errors.invalid(&path, profile, "can only be set when seccomp type is Localhost"),
        (false, None) => {}
    }
}
