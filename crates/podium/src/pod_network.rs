//! Connects the engine's sandboxes to Podium's network, or through CNI plugins.

use cni::Cni;
use engine::{PodNetwork, PodNetworkError};
use futures::{FutureExt, future::BoxFuture};
use network::{Network, PodAttachment, PortMapping, Protocol};
use runtime::SandboxConfig;
use std::{net::IpAddr, path::Path};

/// Pod network over netlink and nftables.
pub(crate) struct NetlinkPodNetwork(pub(crate) Network);

fn boxed(error: impl std::error::Error + Send + Sync + 'static) -> PodNetworkError {
    PodNetworkError(Box::new(error))
}

fn convert(mapping: &runtime::PortMapping) -> Result<PortMapping, PodNetworkError> {
    let protocol = match mapping.protocol.as_str() {
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    let host_ip = match mapping.host_ip.as_str() {
        "" => None,
        ip => Some(ip.parse().map_err(|error| {
            PodNetworkError(Box::<dyn std::error::Error + Send + Sync>::from(format!("hostIP {ip:?}: {error}")))
        })?),
    };
    Ok(PortMapping { protocol, host_ip, host_port: mapping.host_port, container_port: mapping.container_port })
}

impl PodNetwork for NetlinkPodNetwork {
    fn attach<'a>(
        &'a self,
        sandbox: &'a str,
        netns: &'a Path,
        config: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, PodNetworkError>> {
        async move {
            let port_mappings = config.port_mappings.iter().map(convert).collect::<Result<Vec<_>, _>>()?;
            let attachment = PodAttachment { sandbox, netns, port_mappings: &port_mappings };
            Ok(self.0.attach(attachment).await.map_err(boxed)?.ips())
        }
        .boxed()
    }

    fn detach<'a>(&'a self, sandbox: &'a str) -> BoxFuture<'a, Result<(), PodNetworkError>> {
        async move { self.0.detach(sandbox).await.map_err(boxed) }.boxed()
    }

    fn retain<'a>(&'a self, sandboxes: &'a [String]) -> BoxFuture<'a, Result<(), PodNetworkError>> {
        async move { self.0.retain(sandboxes).await.map_err(boxed) }.boxed()
    }
}

/// Pod network of CNI plugins.
pub(crate) struct CniPodNetwork(pub(crate) Cni);

impl PodNetwork for CniPodNetwork {
    fn not_ready(&self) -> BoxFuture<'_, Option<String>> {
        async move {
            // The words of the CRI's condition, as upstream's kubelet prints it.
            let reason = "NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error";
            self.0.status().await.err().map(|error| format!("{reason}: {error}"))
        }
        .boxed()
    }

    fn attach<'a>(
        &'a self,
        sandbox: &'a str,
        netns: &'a Path,
        config: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, PodNetworkError>> {
        async move { self.0.attach(sandbox, netns, config).await.map_err(boxed) }.boxed()
    }

    fn detach<'a>(&'a self, sandbox: &'a str) -> BoxFuture<'a, Result<(), PodNetworkError>> {
        async move { self.0.detach(sandbox).await.map_err(boxed) }.boxed()
    }

    fn retain<'a>(&'a self, sandboxes: &'a [String]) -> BoxFuture<'a, Result<(), PodNetworkError>> {
        std::future::ready(self.0.retain(sandboxes).map_err(boxed)).boxed()
    }
}
