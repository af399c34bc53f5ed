//! Checks of the `baseline` level.

use super::{
    Check, Violation,
    subject::{Subject, named, plural, quoted, set_of, setters, violation},
};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Probe, SELinuxOptions, SecurityContext};
use std::collections::BTreeSet;

/// Returns the violations for the version of the standards. The `restricted` level overrides some checks.
pub(super) fn checks(subject: &Subject<'_>, restricted: bool) -> Vec<Check> {
    let minor = subject.minor;
    let all: [(Check, bool); 12] = [
        (app_armor, true),
        (capabilities, !(restricted && minor >= 22)),
        (host_namespaces, true),
        (host_path, !restricted),
        (host_ports, true),
        (probe_hosts, minor >= 34),
        (privileged, true),
        (proc_mount, !(restricted && minor >= 35)),
        (se_linux, true),
        (seccomp, !(restricted && minor >= 19)),
        (sysctls, true),
        (host_process, true),
    ];
    all.into_iter().filter(|(_, holds)| *holds).map(|(check, _)| check).collect()
}

fn app_armor(subject: &Subject<'_>) -> Option<Violation> {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let forbidden = |kind: &str| !matches!(kind, "RuntimeDefault" | "Localhost");
    let forbidden_type =
        |c: &SecurityContext| c.app_armor_profile.as_ref().map(|p| p.type_.clone()).filter(|t| forbidden(t));
    let pod = subject.pod().and_then(|c| c.app_armor_profile.as_ref()).map(|p| p.type_.as_str());
    let pod = pod.filter(|kind| forbidden(kind));
    let containers = subject.with_security_context(|c| forbidden_type(c).is_some());
    let kinds: Vec<String> =
        subject.containers().filter_map(|c| c.security_context.as_ref()).filter_map(forbidden_type).collect();
    let kinds = set_of(kinds.iter().map(String::as_str).chain(pod));
    let allowed = |value: &str| matches!(value, "" | "runtime/default") || value.starts_with("localhost/");
    let annotations = subject.meta.annotations.iter().flatten();
    let annotations = annotations.filter(|(key, value)| key.starts_with(ANNOTATION) && !allowed(value));
    let annotations: Vec<String> = annotations.map(|(key, value)| format!("{key}={value:?}")).collect();
    let annotated = || plural(annotations.len(), "annotation", "annotations").to_owned();
    let mut who: Vec<String> = setters(pod.is_some(), &containers).into_iter().collect();
    who.extend((!annotations.is_empty()).then(annotated));
    if who.is_empty() {
        return None;
    }
    let values: Vec<&str> = kinds.into_iter().chain(annotations.iter().map(String::as_str)).collect();
    let reason = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    violation(reason, format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(values)))
}

fn capabilities(subject: &Subject<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    added_capabilities(subject, &ALLOWED).and_then(|detail| violation("non-default capabilities", detail))
}

/// Returns upstream's detail for containers that add other capabilities than the allowed ones.
pub(super) fn added_capabilities(subject: &Subject<'_>, allowed: &[&str]) -> Option<String> {
    let added = |c: &SecurityContext| -> Vec<String> {
        let all = c.capabilities.iter().flat_map(|c| c.add.iter().flatten());
        all.filter(|name| !allowed.contains(&name.as_str())).cloned().collect()
    };
    let containers = subject.with_security_context(|c| !added(c).is_empty());
    let contexts = subject.containers().filter_map(|c| c.security_context.as_ref());
    let names: BTreeSet<String> = contexts.flat_map(added).collect();
    (!containers.is_empty()).then(|| {
        format!("{} must not include {} in securityContext.capabilities.add", named(&containers), quoted(names))
    })
}

fn host_namespaces(subject: &Subject<'_>) -> Option<Violation> {
    let spec = subject.spec;
    let all = [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)];
    let set: Vec<String> =
        all.iter().filter(|(_, v)| *v == Some(true)).map(|(name, _)| format!("{name}=true")).collect();
    if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
}

fn host_path(subject: &Subject<'_>) -> Option<Violation> {
    let volumes = subject.spec.volumes.iter().flatten().filter(|v| v.host_path.is_some());
    let names: Vec<&str> = volumes.map(|v| v.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(names)))
}

fn host_ports(subject: &Subject<'_>) -> Option<Violation> {
    let ports = |c: &Container| -> Vec<String> {
        let all = c.ports.iter().flatten().filter_map(|p| p.host_port).filter(|port| *port != 0);
        all.map(|port| port.to_string()).collect()
    };
    let containers = subject.container_names(|c| !ports(c).is_empty());
    // Sorted as strings, as upstream.
    let all: BTreeSet<String> = subject.containers().flat_map(ports).collect();
    if containers.is_empty() {
        return None;
    }
    let (uses, noun) = (plural(containers.len(), "uses", "use"), plural(all.len(), "hostPort", "hostPorts"));
    let list = all.into_iter().collect::<Vec<_>>().join(", ");
    violation("hostPort", format!("{} {uses} {noun} {list}", named(&containers)))
}

fn probe_hosts(subject: &Subject<'_>) -> Option<Violation> {
    let hosts = |c: &Container| -> Vec<String> {
        let probes = [&c.liveness_probe, &c.readiness_probe, &c.startup_probe].into_iter().flatten();
        let handlers = c.lifecycle.iter().flat_map(|l| [&l.post_start, &l.pre_stop]).flatten();
        let all = probes.flat_map(probe_host).chain(handlers.flat_map(handler_host));
        all.filter(|host| !host.is_empty()).cloned().collect()
    };
    let mut containers = subject.container_names(|c| !hosts(c).is_empty());
    containers.sort_unstable();
    let all: BTreeSet<String> = subject.containers().flat_map(hosts).collect();
    if containers.is_empty() {
        return None;
    }
    let uses = plural(containers.len(), "uses", "use");
    let noun = plural(all.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    violation("probe or lifecycle host", format!("{} {uses} {noun} {}", named(&containers), quoted(all)))
}

fn probe_host(probe: &Probe) -> impl Iterator<Item = &String> {
    let http = probe.http_get.iter().filter_map(|h| h.host.as_ref());
    http.chain(probe.tcp_socket.iter().filter_map(|t| t.host.as_ref()))
}

fn handler_host(handler: &LifecycleHandler) -> impl Iterator<Item = &String> {
    let http = handler.http_get.iter().filter_map(|h| h.host.as_ref());
    http.chain(handler.tcp_socket.iter().filter_map(|t| t.host.as_ref()))
}

fn privileged(subject: &Subject<'_>) -> Option<Violation> {
    let containers = subject.with_security_context(|c| c.privileged == Some(true));
    if containers.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", named(&containers)))
}

fn proc_mount(subject: &Subject<'_>) -> Option<Violation> {
    if subject.minor >= 35 && subject.has_user_namespace() { None } else { any_proc_mount(subject) }
}

/// Checks for containers with a `procMount` other than the default.
pub(super) fn any_proc_mount(subject: &Subject<'_>) -> Option<Violation> {
    let forbidden_type = |c: &SecurityContext| c.proc_mount.clone().filter(|kind| kind != "Default");
    let containers = subject.with_security_context(|c| forbidden_type(c).is_some());
    let contexts = subject.containers().filter_map(|c| c.security_context.as_ref());
    let kinds: BTreeSet<String> = contexts.filter_map(forbidden_type).collect();
    if containers.is_empty() {
        return None;
    }
    violation(
        "procMount",
        format!("{} must not set securityContext.procMount to {}", named(&containers), quoted(kinds)),
    )
}

fn se_linux(subject: &Subject<'_>) -> Option<Violation> {
    let minor = subject.minor;
    let allowed = |kind: &str| match kind {
        "" | "container_t" | "container_init_t" | "container_kvm_t" => true,
        "container_engine_t" => minor >= 31,
        _ => false,
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let bad = |o: &SELinuxOptions| !allowed(&text(&o.type_)) || !text(&o.user).is_empty() || !text(&o.role).is_empty();
    let pod = subject.pod().and_then(|c| c.se_linux_options.as_ref());
    let containers = subject.with_security_context(|c| c.se_linux_options.as_ref().is_some_and(bad));
    let who = setters(pod.is_some_and(bad), &containers)?;
    let all = subject.containers().filter_map(|c| c.security_context.as_ref()?.se_linux_options.as_ref()).chain(pod);
    let all: Vec<&SELinuxOptions> = all.collect();
    let kinds: BTreeSet<String> = all.iter().map(|o| text(&o.type_)).filter(|kind| !allowed(kind)).collect();
    let mut descriptions = Vec::new();
    if !kinds.is_empty() {
        descriptions.push(format!("{} {}", plural(kinds.len(), "type", "types"), quoted(&kinds)));
    }
    for (name, set) in [
        ("user", all.iter().any(|o| !text(&o.user).is_empty())),
        ("role", all.iter().any(|o| !text(&o.role).is_empty())),
    ] {
        if set {
            descriptions.push(format!("{name} may not be set"));
        }
    }
    violation(
        "seLinuxOptions",
        format!("{who} set forbidden securityContext.seLinuxOptions: {}", descriptions.join("; ")),
    )
}

fn seccomp(subject: &Subject<'_>) -> Option<Violation> {
    if subject.minor >= 19 { forbidden_seccomp(subject) } else { seccomp_annotations(subject) }
}

/// Checks for seccomp profiles other than `RuntimeDefault` and `Localhost`.
pub(super) fn forbidden_seccomp(subject: &Subject<'_>) -> Option<Violation> {
    let profile_type = |c: &SecurityContext| c.seccomp_profile.as_ref().map(|p| p.type_.clone());
    let bad = |kind: &String| !is_filter(kind);
    let pod = subject.pod().and_then(|c| c.seccomp_profile.as_ref()).map(|p| p.type_.clone()).filter(bad);
    let containers = subject.with_security_context(|c| profile_type(c).as_ref().is_some_and(bad));
    let who = setters(pod.is_some(), &containers)?;
    let contexts = subject.containers().filter_map(|c| c.security_context.as_ref());
    let kinds: BTreeSet<String> = contexts.filter_map(profile_type).filter(bad).chain(pod).collect();
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(kinds)))
}

pub(super) fn is_filter(kind: &str) -> bool {
    matches!(kind, "Localhost" | "RuntimeDefault")
}

/// Checks the seccomp annotations used before 1.19.
fn seccomp_annotations(subject: &Subject<'_>) -> Option<Violation> {
    let allowed =
        |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let containers = subject.containers().map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", c.name));
    let keys = containers.chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]);
    let annotation = |key: String| {
        let value = subject.meta.annotations.as_ref()?.get(&key).filter(|value| !allowed(value))?;
        Some(format!("{key}={value:?}"))
    };
    let found: BTreeSet<String> = keys.filter_map(annotation).collect();
    if found.is_empty() {
        return None;
    }
    let list = found.iter().cloned().collect::<Vec<_>>().join(", ");
    violation("seccompProfile", format!("forbidden {} {list}", plural(found.len(), "annotation", "annotations")))
}

fn sysctls(subject: &Subject<'_>) -> Option<Violation> {
    let allowed = |name: &str| match name {
        "kernel.shm_rmid_forced"
        | "net.ipv4.ip_local_port_range"
        | "net.ipv4.tcp_syncookies"
        | "net.ipv4.ping_group_range"
        | "net.ipv4.ip_unprivileged_port_start" => true,
        "net.ipv4.ip_local_reserved_ports" => subject.minor >= 27,
        "net.ipv4.tcp_keepalive_time"
        | "net.ipv4.tcp_fin_timeout"
        | "net.ipv4.tcp_keepalive_intvl"
        | "net.ipv4.tcp_keepalive_probes" => subject.minor >= 29,
        "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem" => subject.minor >= 32,
        _ => false,
    };
    let all = subject.pod().into_iter().flat_map(|c| c.sysctls.iter().flatten()).map(|s| s.name.as_str());
    let found: Vec<&str> = all.filter(|name| !allowed(name)).collect();
    if found.is_empty() { None } else { violation("forbidden sysctls", found.join(", ")) }
}

fn host_process(subject: &Subject<'_>) -> Option<Violation> {
    let pod = subject.pod().and_then(|c| c.windows_options.as_ref()).is_some_and(|w| w.host_process == Some(true));
    let containers =
        subject.with_security_context(|c| c.windows_options.as_ref().is_some_and(|w| w.host_process == Some(true)));
    let who = setters(pod, &containers)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
