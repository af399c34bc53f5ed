//! Gate that delays the containers of a Pod until its network is ready.

use futures::{FutureExt, TryFutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use std::{error::Error, net::IpAddr, sync::Arc};

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

/// The network of a Pod is not ready.
#[derive(Debug, thiserror::Error)]
#[error("network is not ready: {0}")]
pub(crate) struct NetworkNotReadyError(#[source] Box<dyn Error + Send + Sync>);

type Check = dyn Fn(PodNetwork) -> BoxFuture<'static, Result<(), NetworkNotReadyError>> + Send + Sync;

/// A check that must succeed before each start of a container.
#[derive(Clone)]
pub struct NetworkReadiness(Arc<Check>);

impl NetworkReadiness {
    /// Returns a gate with a check that waits until the network of a Pod is ready, or returns why it is not.
    #[must_use]
    pub fn new<E: Into<Box<dyn Error + Send + Sync>> + 'static>(
        check: impl Fn(PodNetwork) -> BoxFuture<'static, Result<(), E>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |network| check(network).map_err(|cause| NetworkNotReadyError(cause.into())).boxed()))
    }

    pub(crate) async fn wait(&self, network: PodNetwork) -> Result<(), NetworkNotReadyError> {
        (self.0)(network).await
    }
}

#[cfg(test)]
mod tests;
