//! NetworkPolicy controller: enforces NetworkPolicies with nftables.
//!
//! The desired table is a pure function of the API objects ([`rules`]), synced as that of the Service proxy
//! ([`crate::table_sync`]). Without a policy there is no table, and Pods are not watched. The rules stay when Podium
//! exits, as the Pods do.

mod gate;
mod pod_addresses;
mod policy_rules;
mod rules;
#[cfg(test)]
mod tests;

use crate::{
    bridge,
    informer::{ChangeNotifier, changes, start_informer},
    nf_tables::{self, Family},
    node_event,
    table_sync::TableSync,
};
use futures::stream;
pub(crate) use gate::PolicyGate;
use informer::SharedInformer;
use ipnet::Ipv4Net;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

const UNENFORCED: &str =
    "NetworkPolicies are not enforced between Pods of this node: the kernel module br_netfilter is not available";

/// Returns the name of the bridge's policy table.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-policies")
}

/// Configuration of the controller.
#[derive(Debug, Clone)]
pub(crate) struct PolicyConfig {
    pub(crate) node: String,
    /// Bridge of the Pods' veth interfaces.
    pub(crate) bridge: String,
    pub(crate) pods: Ipv4Net,
    /// Whether rules see bridged traffic (br_netfilter).
    pub(crate) sees_bridge: bool,
}

/// Policies and the notification of their changes.
struct Policies {
    all: SharedInformer<NetworkPolicy>,
    changed: ChangeNotifier,
}

/// Runs the controller until it is cancelled. `client` lists and watches policies, and if there are some, Pods and
/// namespaces. Pods wait at the gate for their rules.
pub(crate) async fn sync_policies(client: &Client, config: PolicyConfig, gate: &PolicyGate, stop: &CancellationToken) {
    let all = start_informer(Api::all(client.clone()), |policy: NetworkPolicy| policy, stop);
    let changed = ChangeNotifier::spawn(changes(&all), stop);
    let mut policies = Policies { all, changed };
    policies.all.wait_until_synced().await;
    // Rules of an earlier run may be outdated.
    let mut is_removed = false;
    loop {
        if policies.all.is_empty() {
            is_removed = is_removed || remove_tables(&config.bridge).await;
            policies.changed.wait().await;
        } else {
            is_removed = false;
            // Boxed, so that it takes no memory without policies.
            Box::pin(enforce(client, &config, gate, &mut policies, stop)).await;
        }
    }
}

/// Enforces policies until the last one is deleted.
async fn enforce(
    client: &Client,
    config: &PolicyConfig,
    gate: &PolicyGate,
    policies: &mut Policies,
    stop: &CancellationToken,
) {
    if !config.sees_bridge {
        report_unenforced(client, &config.node, stop);
    }
    let stop = stop.child_token();
    let _stop_on_drop = stop.clone().drop_guard();
    let pods = start_informer(Api::all(client.clone()), pod_addresses::trim, &stop);
    let namespaces = start_informer(Api::all(client.clone()), pod_addresses::trim_namespace, &stop);
    let mut pod_changes = ChangeNotifier::spawn(stream::select(changes(&pods), changes(&namespaces)), &stop);
    tokio::join!(pods.wait_until_synced(), namespaces.wait_until_synced());
    bridge::drop_pod_ipv6(&config.bridge, &table_name(&config.bridge)).await;
    let mut table_sync = TableSync::new(table_name(&config.bridge), "NetworkPolicies", rules::FORWARD);
    let mut reports = gate.reports();
    loop {
        let (all, pods) = (policies.all.all(), pods.all());
        if all.is_empty() {
            return;
        }
        gate.prune(&pods);
        let (owners, number, is_new) = reports.take();
        if is_new {
            // The table may have been removed: no Pod starts before it is installed again.
            table_sync.check().await;
        }
        if table_sync.sync(rules::table(&all, &pods, &owners, &namespaces.all(), config.pods)).await {
            gate.publish(number, &all);
        }
        let changed = async {
            tokio::select! {
                () = policies.changed.wait() => {}
                () = pod_changes.wait() => {}
            }
        };
        // A starting Pod does not wait for the next regular sync.
        tokio::select! {
            () = table_sync.wait(changed) => {}
            () = reports.wait() => {}
        }
    }
}

/// Reports by log and Event that policies are not enforced between Pods of the bridge.
fn report_unenforced(client: &Client, node: &str, stop: &CancellationToken) {
    tracing::warn!("{UNENFORCED}");
    let (client, node) = (client.clone(), node.to_owned());
    let warning = async move { node_event::warn(&client, &node, "NetworkPolicyNotEnforced", UNENFORCED).await };
    tokio::spawn(stop.clone().run_until_cancelled_owned(warning));
}

/// Removes the tables; returns whether this succeeded.
async fn remove_tables(bridge: &str) -> bool {
    let name = table_name(bridge);
    let removed = nf_tables::remove_tables(&[(Family::Ip6, &name), (Family::Ip, &name)]).await;
    if let Err(e) = &removed {
        tracing::warn!(error = %e, "failed to remove nftables rules of NetworkPolicies");
    }
    removed.is_ok()
}
