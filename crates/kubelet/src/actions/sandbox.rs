//! The sandbox of a Pod.

use super::volumes;
use crate::Shared;
use lifecycle::{Pod, SandboxFact};
use runtime::{NamespaceMode, Namespaces, PortMapping, SandboxConfig};

pub(super) fn namespaces(pod: &Pod) -> Namespaces {
    let spec = pod.object().spec.clone().unwrap_or_default();
    let node = |flag: Option<bool>, otherwise| if flag == Some(true) { NamespaceMode::Node } else { otherwise };
    let pid = if spec.share_process_namespace == Some(true) { NamespaceMode::Pod } else { NamespaceMode::Container };
    Namespaces {
        network: node(spec.host_network, NamespaceMode::Pod),
        pid: node(spec.host_pid, pid),
        ipc: node(spec.host_ipc, NamespaceMode::Pod),
    }
}

pub(super) fn config(shared: &Shared, pod: &Pod, attempt: u32) -> SandboxConfig {
    let spec = pod.object().spec.clone().unwrap_or_default();
    let host_network = spec.host_network == Some(true);
    let hostname = spec.hostname.clone().unwrap_or_else(|| pod.name().to_owned());
    let ports = spec.containers.iter().flat_map(|c| c.ports.iter().flatten()).filter_map(|p| {
        Some(PortMapping {
            protocol: p.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            container_port: p.container_port.try_into().ok()?,
            host_port: p.host_port.filter(|h| *h > 0)?.try_into().ok()?,
            host_ip: p.host_ip.clone().unwrap_or_default(),
        })
    });
    SandboxConfig {
        name: pod.name().to_owned(),
        namespace: pod.namespace().to_owned(),
        uid: pod.uid().to_owned(),
        attempt,
        // A host name has 63 bytes at most.
        hostname: if host_network { String::new() } else { hostname.chars().take(63).collect() },
        log_directory: volumes::log_dir(shared, pod),
        port_mappings: if host_network { Vec::new() } else { ports.collect() },
        labels: pod.object().metadata.labels.clone().unwrap_or_default(),
        cgroup_parent: shared.cgroups.path(pod.object()),
        namespaces: namespaces(pod),
        privileged: spec
            .containers
            .iter()
            .any(|c| c.security_context.as_ref().is_some_and(|s| s.privileged == Some(true))),
        ..SandboxConfig::default()
    }
}

pub(super) async fn create(shared: &Shared, pod: &Pod, attempt: u32) -> SandboxFact {
    let config = config(shared, pod, attempt);
    let failed = |message: String| SandboxFact::Failed { message };
    // Whoever restarted the machine took the cgroups away: a new sandbox makes sure of them.
    if let Err(message) = shared.cgroups.create(pod.object()) {
        return failed(message);
    }
    super::weigh_burstable(shared);
    let id = match shared.runtime.run_sandbox(&config).await {
        Ok(id) => id,
        Err(error) => return failed(error.to_string()),
    };
    if config.namespaces.network == NamespaceMode::Node {
        return SandboxFact::Ready { id: id.0, attempt, ips: vec![shared.options.node_ip] };
    }
    match shared.runtime.sandbox(&id).await {
        Ok(status) => SandboxFact::Ready { id: id.0, attempt, ips: status.ips },
        Err(error) => failed(error.to_string()),
    }
}
