//! Gate that delays containers of a Pod until its anti-spoofing and NetworkPolicy rules are installed.

use crate::{Error, Network, PodConnector, anti_spoof::AntiSpoof, destroy::CniPaths, policies::PolicyGate};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use std::{net::IpAddr, sync::Arc};

/// Why a container must not start.
#[derive(Debug, thiserror::Error)]
pub enum PodGateError {
    /// The anti-spoofing rules cannot be installed.
    #[error("failed to check the senders of frames: {0}")]
    AntiSpoof(#[from] Error),
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
    anti_spoof: Option<AntiSpoof>,
}

impl PodGate {
    /// Creates a gate that [`Network::serve`] opens. `client` lists NetworkPolicies.
    #[must_use]
    pub fn new(network: &Network, client: Client) -> Self {
        let anti_spoof = AntiSpoof::new(&network.bridge, CniPaths::default().cni_cache);
        // `Network::attach` adds the rules itself.
        let is_needed = network.has_anti_spoofing && network.connector == PodConnector::Cni;
        Self { client, policies: PolicyGate::default(), anti_spoof: is_needed.then_some(anti_spoof) }
    }

    /// Waits until the rules for a Pod in this sandbox, at these addresses, are installed.
    ///
    /// # Errors
    /// After a timeout: the container must not start.
    pub async fn wait(&self, pod: Arc<Pod>, sandbox: &str, ips: &[IpAddr]) -> Result<(), PodGateError> {
        let is_of_the_node = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        let pod_ip = ips.iter().find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        });
        let Some(ip) = pod_ip.filter(|_| !is_of_the_node) else { return Ok(()) };
        if let Some(anti_spoof) = &self.anti_spoof {
            anti_spoof.add(sandbox).await?;
        }
        self.policies.wait(&self.client, pod, ip).await
    }

    pub(crate) fn policies(&self) -> &PolicyGate {
        &self.policies
    }
}
