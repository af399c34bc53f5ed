//! Holds the containers of a Pod back until the rules of its NetworkPolicies are in the kernel.
//!
//! Rules look Pods up by address. The kubelet reports which Pod has an address as soon as the sandbox exists, before its
//! first process starts, so an address that another Pod had before is never mistaken for that Pod's. A container starts
//! after a synchronization that began later than the report and covers every policy of a fresh list.

use crate::program::{find, run};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long one start of a container waits. The kubelet retries.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often policies are listed again while a start waits: the one that is waited for may have been deleted.
const RELIST: Duration = Duration::from_millis(500);

/// Which Pod has an address, as the kubelet reported it.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) pod: Arc<Pod>,
    /// Whether the rules for it were in the kernel once.
    confirmed: bool,
    /// Whether the API had the Pod.
    listed: bool,
}

impl Holder {
    pub(super) fn new(pod: Arc<Pod>) -> Self {
        Self { pod, confirmed: false, listed: false }
    }

    pub(super) fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// The holders of addresses. An address has one, and a Pod is the holder of one.
pub(super) type Holders = BTreeMap<Ipv4Addr, Holder>;

/// What the kubelet has reported.
#[derive(Debug, Default)]
struct Reported {
    /// Counts reports.
    number: u64,
    holders: Holders,
}

/// What the rules in the kernel were made from.
#[derive(Debug, Default)]
struct Synced {
    /// The last report that they include.
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

/// The two ends of the gate: the kubelet waits at it, the controller of NetworkPolicies opens it.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyGate(Arc<State>);

#[derive(Debug, Default)]
struct State {
    reported: watch::Sender<Reported>,
    synced: watch::Sender<Synced>,
}

impl PolicyGate {
    /// Waits until the rules of the policies that select the Pod are in the kernel.
    ///
    /// # Errors
    /// When they are not within [`TIMEOUT`].
    pub(crate) async fn wait(&self, client: &Client, pod: Arc<Pod>, ip: Ipv4Addr) -> Result<(), String> {
        let Some(number) = self.report(Arc::clone(&pod), ip) else { return Ok(()) };
        let mut failure = None;
        match tokio::time::timeout(TIMEOUT, self.wait_synced(client, number, &mut failure)).await {
            Ok(has_policies) => {
                if has_policies && !has_begun_at(&pod, ip) {
                    forget_connections(ip).await;
                }
                self.confirm(&pod, ip);
                Ok(())
            }
            Err(_) => Err(failure.map_or_else(
                || "timed out waiting for the rules of NetworkPolicies".to_owned(),
                |error| format!("failed to list NetworkPolicies: {error}"),
            )),
        }
    }

    /// Returns the report's number, or nothing where the rules for this Pod at this address were confirmed before.
    fn report(&self, pod: Arc<Pod>, ip: Ipv4Addr) -> Option<u64> {
        let mut number = None;
        self.0.reported.send_if_modified(|reported| {
            let new = Holder::new(pod);
            let known = reported.holders.get(&ip).filter(|known| known.uid() == new.uid());
            if known.is_some_and(|known| known.confirmed) {
                return false;
            }
            reported.holders.retain(|_, holder| holder.uid() != new.uid());
            reported.holders.insert(ip, new);
            reported.number += 1;
            number = Some(reported.number);
            true
        });
        number
    }

    /// Returns whether there are policies. `failure` is why they cannot be listed at the moment.
    async fn wait_synced(&self, client: &Client, number: u64, failure: &mut Option<kube::Error>) -> bool {
        let policies: Api<NetworkPolicy> = Api::all(client.clone());
        let mut synced = self.0.synced.subscribe();
        loop {
            let listed = match policies.list_metadata(&ListParams::default()).await {
                Ok(listed) => versions(listed.items.iter().map(|policy| &policy.metadata)),
                Err(error) => {
                    *failure = Some(error);
                    tokio::time::sleep(RELIST).await;
                    continue;
                }
            };
            *failure = None;
            if listed.is_empty() {
                return false;
            }
            let covered = synced.wait_for(|synced| synced.covers(number, &listed));
            if let Ok(Ok(_)) = tokio::time::timeout(RELIST, covered).await {
                return true;
            }
        }
    }

    fn confirm(&self, pod: &Pod, ip: Ipv4Addr) {
        self.0.reported.send_if_modified(|reported| {
            let holder = reported.holders.get_mut(&ip);
            if let Some(holder) = holder.filter(|holder| holder.pod.metadata.uid == pod.metadata.uid) {
                holder.confirmed = true;
            }
            false
        });
    }

    /// What the kubelet reports from now on.
    pub(super) fn reports(&self) -> Reports {
        Reports { reported: self.0.reported.subscribe(), number: 0 }
    }

    /// Forgets the holders that the API no longer has.
    pub(super) fn prune(&self, pods: &[Arc<Pod>]) {
        let uids: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        self.0.reported.send_if_modified(|reported| {
            reported.holders.retain(|_, holder| {
                let is_there = uids.contains(holder.uid());
                holder.listed |= is_there;
                is_there || !holder.listed
            });
            false
        });
    }

    /// Publishes that the rules in the kernel include these policies and the report of this number.
    pub(super) fn publish(&self, number: u64, policies: &[Arc<NetworkPolicy>]) {
        let policies = versions(policies.iter().map(|policy| &policy.metadata));
        self.0.synced.send_replace(Synced { number, policies });
    }
}

/// The controller's view of what the kubelet reports.
pub(super) struct Reports {
    reported: watch::Receiver<Reported>,
    number: u64,
}

impl Reports {
    /// The holders now, the number of the last report, and whether it is new.
    pub(super) fn take(&mut self) -> (Holders, u64, bool) {
        let reported = self.reported.borrow_and_update();
        let is_new = reported.number > self.number;
        self.number = reported.number;
        (reported.holders.clone(), reported.number, is_new)
    }

    /// Waits for a report since the last one that was taken.
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

/// Whether a container of the Pod has run at this address: its connections are its own.
fn has_begun_at(pod: &Pod, ip: Ipv4Addr) -> bool {
    let Some(status) = pod.status.as_ref().filter(|status| status.pod_ip == Some(ip.to_string())) else { return false };
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let states = all.flat_map(|container| [&container.state, &container.last_state]).flatten();
    states.into_iter().any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Removes what connection tracking knows of the address: packets of connections of the Pod that had it before pass as
/// established ones.
async fn forget_connections(ip: Ipv4Addr) {
    if find("conntrack").is_none() {
        return;
    }
    for side in ["--orig-src", "--reply-src"] {
        // It fails where there is nothing to remove.
        let _ = run("conntrack", &["-D", side, &ip.to_string()], "").await;
    }
}

#[cfg(test)]
mod tests;
