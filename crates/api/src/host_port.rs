//! Ports of the node that Pods hold (`pkg/scheduler/framework`, `HostPortInfo`).

use crate::pod::{ContainerKind, containers};
use k8s_openapi::api::core::v1::PodSpec;

/// A port of the node that a container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The address; `0.0.0.0` is every address.
    pub ip: String,
    /// The port.
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be held on the same node.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        let every = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == every || other.ip == every)
    }
}

/// The host ports of a Pod's app containers and sidecars.
#[must_use]
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let or = |value: Option<&String>, default: &str| {
        value.filter(|s| !s.is_empty()).map_or_else(|| default.to_owned(), Clone::clone)
    };
    containers(spec)
        .filter(|(kind, _)| *kind != ContainerKind::Init)
        .flat_map(|(_, c)| c.ports.iter().flatten())
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0)?;
            Some(HostPort { protocol: or(p.protocol.as_ref(), "TCP"), ip: or(p.host_ip.as_ref(), "0.0.0.0"), port })
        })
        .collect()
}
