//! Sysctls of Pods: which of them a node allows (`pkg/kubelet/sysctl`).

use k8s_openapi::api::core::v1::PodSpec;

/// Safe sysctls (`SafeSysctlAllowlist`), allowed unless the Pod shares the host's namespace.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// Prefixes of namespaced sysctls; all others belong to the host.
const NAMESPACED: [(&str, Namespace); 5] = [
    ("kernel.sem", Namespace::Ipc),
    ("kernel.shm", Namespace::Ipc),
    ("kernel.msg", Namespace::Ipc),
    ("fs.mqueue.", Namespace::Ipc),
    ("net.", Namespace::Net),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

impl Namespace {
    fn of(name: &str) -> Option<Self> {
        NAMESPACED.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, namespace)| *namespace)
    }
}

/// Returns the sysctl's name with dots as separators; a name whose first separator is a slash uses slashes.
#[must_use]
pub fn normalized(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// Validates a pattern of `allowedUnsafeSysctls`. Returns the problem, if any.
#[must_use]
pub fn pattern_error(pattern: &str) -> Option<String> {
    let name = normalized(pattern);
    let bare = name.strip_suffix('*').unwrap_or(&name);
    if bare.is_empty() || bare.contains(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c)))
    {
        return Some(format!("sysctl {pattern:?} is neither a name nor a prefix followed by *"));
    }
    Namespace::of(bare).is_none().then(|| format!("the sysctls {pattern:?} are not known to be namespaced"))
}

/// Returns upstream's rejection message if the node does not allow a sysctl of the Pod.
pub(crate) fn forbidden(spec: &PodSpec, allowed_unsafe: &[String]) -> Option<String> {
    let context = spec.security_context.as_ref();
    let uses_host = |namespace| match namespace {
        Namespace::Ipc => spec.host_ipc == Some(true),
        Namespace::Net => spec.host_network == Some(true),
    };
    for sysctl in context.and_then(|c| c.sysctls.as_ref()).into_iter().flatten() {
        let name = normalized(&sysctl.name);
        let allowed = SAFE.contains(&name.as_str())
            || allowed_unsafe.iter().map(|p| normalized(p)).any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == pattern,
            });
        let problem = match Namespace::of(&name).filter(|_| allowed) {
            None => format!("{name:?} not allowlisted"),
            Some(namespace) if uses_host(namespace) => {
                let kind = if namespace == Namespace::Ipc { "IPC" } else { "Net" };
                format!("{name:?} not allowed with host {kind} enabled")
            }
            Some(_) => continue,
        };
        return Some(format!("forbidden sysctl: {problem}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(fields: Value, allowed_unsafe: &[&str], expected: Option<&str>) {
        let mut spec = json!({"containers": []});
        fields.as_object().unwrap().iter().for_each(|(k, v)| spec[k] = v.clone());
        let allowed_unsafe: Vec<String> = allowed_unsafe.iter().map(|s| (*s).to_owned()).collect();
        let found = forbidden(&serde_json::from_value(spec).unwrap(), &allowed_unsafe);
        assert_eq!(found.as_deref(), expected.map(|e| format!("forbidden sysctl: {e}")).as_deref());
    }

    fn named(name: &str) -> Value {
        json!({"sysctls": [{"name": name, "value": "1"}]})
    }

    #[test]
    fn sysctl_is_allowed_if_safe_or_on_the_node_allowlist() {
        let spec = |name: &str| json!({"securityContext": named(name)});
        check(json!({}), &[], None);
        check(spec("net.ipv4.tcp_syncookies"), &[], None);
        check(spec("net/ipv4/tcp_syncookies"), &[], None);
        check(spec("net.core.somaxconn"), &[], Some("\"net.core.somaxconn\" not allowlisted"));
        check(spec("net.core.somaxconn"), &["net.core.*"], None);
        check(spec("kernel.msgmax"), &["kernel.msgmax"], None);
        check(spec("vm.swappiness"), &["vm.*"], Some("\"vm.swappiness\" not allowlisted"));
    }

    #[test]
    fn sysctl_of_host_namespace_is_forbidden() {
        let net = json!({"hostNetwork": true, "securityContext": named("net.ipv4.tcp_rmem")});
        check(net, &[], Some("\"net.ipv4.tcp_rmem\" not allowed with host Net enabled"));
        let ipc = json!({"hostIPC": true, "securityContext": named("kernel.shm_rmid_forced")});
        check(ipc, &[], Some("\"kernel.shm_rmid_forced\" not allowed with host IPC enabled"));
    }

    #[test]
    fn sysctl_pattern_must_be_namespaced() {
        assert_eq!(pattern_error("net.*"), None);
        assert_eq!(pattern_error("kernel/shm*"), None);
        assert!(pattern_error("vm.*").unwrap().contains("not known to be namespaced"));
        assert!(pattern_error("net.*.x").unwrap().contains("neither"));
    }
}
