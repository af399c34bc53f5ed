//! Host ports of Pods (`HostPortInfo` in `pkg/scheduler/framework`).

use crate::pod::{ContainerKind, containers};
use k8s_openapi::api::core::v1::PodSpec;

/// A host port that a container requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The host IP; `0.0.0.0` means all addresses.
    pub ip: String,
    /// The port.
    pub port: i32,
}

impl HostPort {
    /// Returns whether both ports cannot be used on the same node (`CheckConflict`).
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        let any_ip = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == any_ip || other.ip == any_ip)
    }
}

/// Returns the host ports of a Pod's app containers and sidecars.
#[must_use]
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let non_empty_or = |value: Option<&String>, default: &str| {
        value.filter(|s| !s.is_empty()).map_or_else(|| default.to_owned(), Clone::clone)
    };
    containers(spec)
        .filter(|(kind, _)| *kind != ContainerKind::Init)
        .flat_map(|(_, c)| c.ports.iter().flatten())
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0)?;
            Some(HostPort {
                protocol: non_empty_or(p.protocol.as_ref(), "TCP"),
                ip: non_empty_or(p.host_ip.as_ref(), "0.0.0.0"),
                port,
            })
        })
        .collect()
}
