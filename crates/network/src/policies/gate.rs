//! Gate that delays containers of a Pod until the rules of its NetworkPolicies are installed.
//!
//! Rules match Pods by address. The kubelet reports a Pod's address when the sandbox exists, before its first process
//! starts, so that a reused address is never attributed to its previous Pod. A container starts after a sync that
//! began later than the report and covers every policy of a fresh list.

use crate::{
    PodGateError,
    command::{find, run},
};
use k8s_openapi::{
    api::{core::v1::Pod, networking::v1::NetworkPolicy},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::ListParams};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// Timeout of a container start. The kubelet retries.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of policy lists while a start waits: the expected policy may have been deleted.
const RELIST_INTERVAL: Duration = Duration::from_millis(500);

/// Pod that owns an address, as the kubelet reported it.
#[derive(Debug, Clone)]
pub(super) struct IpOwner {
    pub(super) pod: Arc<Pod>,
    /// Whether its rules were installed once.
    confirmed: bool,
    /// Whether the Pod was seen in the API.
    listed: bool,
}

impl IpOwner {
    pub(super) fn new(pod: Arc<Pod>) -> Self {
        Self { pod, confirmed: false, listed: false }
    }

    pub(super) fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// Owners by address. An address has one owner, and a Pod owns one address.
pub(super) type IpOwners = BTreeMap<Ipv4Addr, IpOwner>;

/// Reports of the kubelet.
#[derive(Debug, Default)]
struct Reported {
    /// Number of reports so far.
    number: u64,
    owners: IpOwners,
}

/// State that the installed rules were computed from.
#[derive(Debug, Default)]
struct Synced {
    /// Number of the last report that they include.
    number: u64,
    /// Resource versions of the policies by UID.
    policies: BTreeMap<String, u64>,
}

impl Synced {
    fn covers(&self, number: u64, policies: &BTreeMap<String, u64>) -> bool {
        let covers = |(uid, version): (&String, &u64)| self.policies.get(uid).is_some_and(|synced| synced >= version);
        self.number >= number && policies.iter().all(covers)
    }
}

/// Gate between the kubelet, which waits, and the NetworkPolicy controller, which opens it.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyGate(Arc<State>);

#[derive(Debug, Default)]
struct State {
    reported: watch::Sender<Reported>,
    synced: watch::Sender<Synced>,
}

impl PolicyGate {
    /// Waits until the rules of the policies that select the Pod are installed.
    ///
    /// # Errors
    /// After [`TIMEOUT`].
    pub(crate) async fn wait(&self, client: &Client, pod: Arc<Pod>, ip: Ipv4Addr) -> Result<(), PodGateError> {
        let Some(number) = self.report(Arc::clone(&pod), ip) else { return Ok(()) };
        let mut failure = None;
        match tokio::time::timeout(TIMEOUT, self.wait_synced(client, number, &mut failure)).await {
            Ok(has_policies) => {
                if has_policies && !has_run_at(&pod, ip) {
                    delete_conntrack_entries(ip).await;
                }
                self.confirm(&pod, ip);
                Ok(())
            }
            Err(_) => Err(failure.map_or(PodGateError::Timeout, PodGateError::ListPolicies)),
        }
    }

    /// Reports the address; returns the report's number, or `None` if the Pod's rules at this address were confirmed
    /// before.
    fn report(&self, pod: Arc<Pod>, ip: Ipv4Addr) -> Option<u64> {
        let mut number = None;
        self.0.reported.send_if_modified(|reported| {
            let new = IpOwner::new(pod);
            let known = reported.owners.get(&ip).filter(|known| known.uid() == new.uid());
            if known.is_some_and(|known| known.confirmed) {
                return false;
            }
            reported.owners.retain(|_, owner| owner.uid() != new.uid());
            reported.owners.insert(ip, new);
            reported.number += 1;
            number = Some(reported.number);
            true
        });
        number
    }

    /// Waits for a sync that covers the report; returns whether there are policies. `failure` is the current list
    /// error.
    async fn wait_synced(&self, client: &Client, number: u64, failure: &mut Option<kube::Error>) -> bool {
        let policies: Api<NetworkPolicy> = Api::all(client.clone());
        let mut synced = self.0.synced.subscribe();
        loop {
            let listed = match policies.list_metadata(&ListParams::default()).await {
                Ok(listed) => versions(listed.items.iter().map(|policy| &policy.metadata)),
                Err(error) => {
                    *failure = Some(error);
                    tokio::time::sleep(RELIST_INTERVAL).await;
                    continue;
                }
            };
            *failure = None;
            if listed.is_empty() {
                return false;
            }
            let covered = synced.wait_for(|synced| synced.covers(number, &listed));
            if let Ok(Ok(_)) = tokio::time::timeout(RELIST_INTERVAL, covered).await {
                return true;
            }
        }
    }

    fn confirm(&self, pod: &Pod, ip: Ipv4Addr) {
        self.0.reported.send_if_modified(|reported| {
            let owner = reported.owners.get_mut(&ip);
            if let Some(owner) = owner.filter(|owner| owner.pod.metadata.uid == pod.metadata.uid) {
                owner.confirmed = true;
            }
            false
        });
    }

    /// Subscribes to reports of the kubelet.
    pub(super) fn reports(&self) -> Reports {
        Reports { reported: self.0.reported.subscribe(), number: 0 }
    }

    /// Removes owners that were deleted from the API.
    pub(super) fn prune(&self, pods: &[Arc<Pod>]) {
        let uids: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        self.0.reported.send_if_modified(|reported| {
            reported.owners.retain(|_, owner| {
                let is_there = uids.contains(owner.uid());
                owner.listed |= is_there;
                is_there || !owner.listed
            });
            false
        });
    }

    /// Publishes that the installed rules include these policies and the report of this number.
    pub(super) fn publish(&self, number: u64, policies: &[Arc<NetworkPolicy>]) {
        let policies = versions(policies.iter().map(|policy| &policy.metadata));
        self.0.synced.send_replace(Synced { number, policies });
    }
}

/// Subscription of the controller to reports.
pub(super) struct Reports {
    reported: watch::Receiver<Reported>,
    number: u64,
}

impl Reports {
    /// Returns the owners, the number of the last report, and whether it is new.
    pub(super) fn take(&mut self) -> (IpOwners, u64, bool) {
        let reported = self.reported.borrow_and_update();
        let is_new = reported.number > self.number;
        self.number = reported.number;
        (reported.owners.clone(), reported.number, is_new)
    }

    /// Waits for a report since the last `take`.
    pub(super) async fn wait(&mut self) {
        if self.reported.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn versions<'a>(policies: impl Iterator<Item = &'a ObjectMeta>) -> BTreeMap<String, u64> {
    let version = |meta: &ObjectMeta| meta.resource_version.as_deref().and_then(|text| text.parse().ok());
    policies.filter_map(|meta| Some((meta.uid.clone()?, version(meta).unwrap_or(u64::MAX)))).collect()
}

/// Returns whether a container of the Pod has run at this address: its connections are its own.
fn has_run_at(pod: &Pod, ip: Ipv4Addr) -> bool {
    let Some(status) = pod.status.as_ref().filter(|status| status.pod_ip == Some(ip.to_string())) else { return false };
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let states = all.flat_map(|container| [&container.state, &container.last_state]).flatten();
    states.into_iter().any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Deletes conntrack entries of the address: packets of the previous Pod's connections would be accepted as
/// established.
async fn delete_conntrack_entries(ip: Ipv4Addr) {
    if find("conntrack").is_none() {
        return;
    }
    for side in ["--orig-src", "--reply-src"] {
        // conntrack fails if no entry matches.
        let _ = run("conntrack", &["-D", side, &ip.to_string()], "").await;
    }
}

#[cfg(test)]
mod tests;
