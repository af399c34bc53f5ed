//! Gate that delays the containers of a Pod until its network is ready.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use std::{net::IpAddr, sync::Arc};

/// The network of one Pod on this node.
#[derive(Debug, Clone)]
pub struct PodNetwork {
    /// The Pod as the kubelet knows it.
    pub pod: Arc<Pod>,
    /// The runtime's ID of the Pod's sandbox.
    pub sandbox: String,
    /// Addresses of the sandbox, the primary one first.
    pub ips: Vec<IpAddr>,
}

type Check = dyn Fn(PodNetwork) -> BoxFuture<'static, Result<(), String>> + Send + Sync;

/// A check that must succeed before each start of a container.
#[derive(Clone)]
pub struct NetworkReadiness(Arc<Check>);

impl NetworkReadiness {
    /// Returns a gate with a check that waits until the network of a Pod is ready, or returns why it is not.
    #[must_use]
    pub fn new(check: impl Fn(PodNetwork) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) async fn wait(&self, network: PodNetwork) -> Result<(), String> {
        (self.0)(network).await
    }
}

#[cfg(test)]
mod tests;
