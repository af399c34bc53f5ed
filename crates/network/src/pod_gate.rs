//! Gate that delays containers of a Pod until its NetworkPolicy rules are installed.

use crate::{Network, PodConnector, policies::PolicyGate};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use std::{net::IpAddr, sync::Arc};

/// Why a container must not start.
#[derive(Debug, thiserror::Error)]
pub enum PodGateError {
    /// The NetworkPolicies cannot be listed.
    #[error("failed to list NetworkPolicies: {0}")]
    ListPolicies(#[source] kube::Error),
    /// The rules of NetworkPolicies are not installed in time.
    #[error("timed out waiting for the rules of NetworkPolicies")]
    Timeout,
}

/// Gate that the kubelet passes before it starts a container. Cheap to clone.
#[derive(Clone)]
pub struct PodGate {
    client: Client,
    policies: PolicyGate,
    /// Whether NetworkPolicies are this crate's, and not those of a CNI provider.
    is_needed: bool,
}

impl PodGate {
    /// Creates a gate that [`Network::serve`] opens. `client` lists NetworkPolicies.
    #[must_use]
    pub fn new(network: &Network, client: Client) -> Self {
        let is_needed = network.connector == PodConnector::Netlink;
        Self { client, policies: PolicyGate::default(), is_needed }
    }

    /// Waits until the rules for a Pod at these addresses are installed.
    ///
    /// # Errors
    /// After a timeout: the container must not start.
    pub async fn wait(&self, pod: Arc<Pod>, ips: &[IpAddr]) -> Result<(), PodGateError> {
        let is_of_the_node = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        let pod_ip = ips.iter().find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        });
        match pod_ip.filter(|_| self.is_needed && !is_of_the_node) {
            Some(ip) => self.policies.wait(&self.client, pod, ip).await,
            None => Ok(()),
        }
    }

    pub(crate) fn policies(&self) -> &PolicyGate {
        &self.policies
    }
}
