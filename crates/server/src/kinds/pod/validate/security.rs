//! Who the processes of a Pod are and what they may do (`ValidatePodSecurityContext`, `ValidateSecurityContext`).

use super::{apparmor, descending_path, items, text};
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const SYSCTL_LONGEST: usize = 253;

/// The Pod's own context, and the namespaces that it shares with its node.
pub(super) fn of_pod(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (context, at) = (&spec["securityContext"], path.child("securityContext"));
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&context[field], &at.child(field), errors);
    }
    for (i, group) in items(context, "supplementalGroups").enumerate() {
        id(group, &at.child("supplementalGroups").index(i), errors);
    }
    let on = |field: &str| spec[field] == json!(true);
    if on("shareProcessNamespace") && on("hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&at.child("shareProcessNamespace"), &json!(true), why);
    }
    sysctls(context, &at.child("sysctls"), errors);
    optional(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &at, errors);
    optional(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &at, errors);
    // The other policy is SELinuxMount's, which is off.
    optional(context, "seLinuxChangePolicy", &["Recursive"], &at, errors);
    seccomp(context, &at.child("seccompProfile"), errors);
    apparmor::profile(context, &at, errors);
    if spec["hostUsers"] == json!(false) {
        // Two of the paths have upstream's capital letters.
        for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if on(field) {
                errors.forbidden(&path.child(shown), "when `pod.Spec.HostUsers` is false");
            }
        }
    }
}

/// The context of a container.
pub(super) fn of_container(c: &Value, spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (context, path) = (&c["securityContext"], path.child("securityContext"));
    for field in ["runAsUser", "runAsGroup"] {
        id(&context[field], &path.child(field), errors);
    }
    optional(context, "procMount", &["Default", "Unmasked"], &path, errors);
    if context["procMount"] == "Unmasked" && spec["hostUsers"] != json!(false) {
        let why = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&path.child("procMount"), &context["procMount"], why);
    }
    seccomp(context, &path.child("seccompProfile"), errors);
    apparmor::profile(context, &path, errors);
    if context["allowPrivilegeEscalation"] == json!(false) {
        let why = "cannot set `allowPrivilegeEscalation` to false and ";
        if context["privileged"] == json!(true) {
            errors.invalid(&path, context, &format!("{why}`privileged` to true"));
        }
        if items(&context["capabilities"], "add").any(|c| c == "CAP_SYS_ADMIN") {
            errors.invalid(&path, context, &format!("{why}`capabilities.Add` CAP_SYS_ADMIN"));
        }
    }
}

/// The number of a user or group.
fn id(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if value.as_i64().is_some_and(|id| !(0..=2_147_483_647).contains(&id)) {
        errors.invalid(path, value, "must be between 0 and 2147483647, inclusive");
    }
}

/// A field that may be set, to one of these.
fn optional(v: &Value, key: &str, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    if v.get(key).is_some_and(|value| !value.as_str().is_some_and(|s| allowed.contains(&s))) {
        errors.not_supported(&path.child(key), &v[key], allowed);
    }
}

fn sysctls(context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, sysctl) in items(context, "sysctls").enumerate() {
        let (path, name) = (path.index(i).child("name"), text(sysctl, "name"));
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl(name) {
            let why = format!(
                "must have at most {SYSCTL_LONGEST} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            );
            errors.invalid(&path, &sysctl["name"], &why);
        } else if !seen.insert(name) {
            errors.duplicate(&path, &sysctl["name"]);
        }
    }
}

/// What a Pod shares with its node, it may not set (`ValidateHostSysctl`). Pods that did so before may go on.
pub(super) fn sysctls_of_the_node(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, sysctl) in items(&spec["securityContext"], "sysctls").enumerate() {
        let name = text(sysctl, "name").replace('/', ".");
        let of_ipc =
            ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| name.starts_with(p)) || name == "kernel.sem";
        for (field, shared) in [("hostNetwork", name.starts_with("net.")), ("hostIPC", of_ipc)] {
            if shared && spec[field] == json!(true) {
                let why = format!("may not be specified when '{field}' is true");
                errors.invalid(&path.index(i).child("name"), &sysctl["name"], &why);
            }
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |part: &str| {
        let b = part.as_bytes();
        matches!((b.first(), b.last()), (Some(f), Some(l)) if plain(*f) && plain(*l))
            && b.iter().all(|c| plain(*c) || matches!(c, b'-' | b'_'))
    };
    name.len() <= SYSCTL_LONGEST && name.split(['.', '/']).all(segment)
}

fn seccomp(context: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(profile) = context.get("seccompProfile").filter(|p| p.is_object()) else { return };
    match text(profile, "type") {
        "" => errors.required(&path.child("type"), "type is required when seccompProfile is set"),
        kind if PROFILES.contains(&kind) => {}
        _ => errors.not_supported(&path.child("type"), &profile["type"], &PROFILES),
    }
    let (file, path) = (profile.get("localhostProfile"), path.child("localhostProfile"));
    match (text(profile, "type") == "Localhost", file) {
        (true, None) => errors.required(&path, "must be set when seccomp type is Localhost"),
        (true, Some(file)) => descending_path(file, &path, errors),
        (false, Some(_)) => errors.invalid(&path, profile, "can only be set when seccomp type is Localhost"),
        (false, None) => {}
    }
}
