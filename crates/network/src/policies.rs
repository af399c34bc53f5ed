//! Lets through to Pods and from them what NetworkPolicies allow.
//!
//! What is to be is one pure function of the API's objects ([`rules`]), which goes to the kernel as the rules of
//! Services do ([`crate::kept`]). Where there is no policy there is no table, and nobody looks at Pods. When Podium ends,
//! the rules stay, as the Pods do.

mod allowed;
mod gate;
mod members;
mod rules;
#[cfg(test)]
mod tests;

use crate::bridge;
use crate::follow::{Changed, follow};
use crate::kept::Kept;
use crate::node_event;
use crate::program::run;
use futures::stream;
pub(crate) use gate::PolicyGate;
use ipnet::Ipv4Net;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

const UNENFORCED: &str =
    "NetworkPolicies are not enforced between Pods of this node: the kernel module br_netfilter is not available";

/// How the table of a bridge's policies is called.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-policies")
}

/// Where policies act.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) node: String,
    /// The bridge that Pods are plugged into.
    pub(crate) bridge: String,
    pub(crate) pods: Ipv4Net,
    /// Whether rules see what Pods of the bridge say to each other.
    pub(crate) sees_bridge: bool,
}

/// The policies that there are, and the word that they have changed.
struct Policies {
    all: Store<NetworkPolicy>,
    changed: Changed,
}

/// Lets them act for ever. `client` lists and watches policies, and Pods and namespaces where there are some. Pods wait at
/// the gate for their rules.
pub(crate) async fn lead(client: &Client, place: Place, gate: &PolicyGate, stop: &CancellationToken) {
    let (all, changes) = follow(Api::all(client.clone()), |_| {});
    let mut policies = Policies { all, changed: Changed::by(changes, stop) };
    let _ = policies.all.wait_until_ready().await;
    // What an earlier Podium has left may say something else.
    let mut is_removed = false;
    loop {
        if policies.all.is_empty() {
            is_removed = is_removed || remove(&place.bridge).await;
            policies.changed.wait().await;
        } else {
            is_removed = false;
            // Of no size where there is no policy.
            Box::pin(act(client, &place, gate, &mut policies, stop)).await;
        }
    }
}

/// Lets policies act until there is none any more.
async fn act(client: &Client, place: &Place, gate: &PolicyGate, policies: &mut Policies, stop: &CancellationToken) {
    if !place.sees_bridge {
        report_unenforced(client, &place.node, stop);
    }
    let stop = stop.child_token();
    let _ends_with_this = stop.clone().drop_guard();
    let (pods, of_pods) = follow(Api::all(client.clone()), members::trim);
    let (namespaces, of_namespaces) = follow(Api::all(client.clone()), members::trim_namespace);
    let mut others = Changed::by(stream::select(of_pods, of_namespaces), &stop);
    let _ = tokio::join!(pods.wait_until_ready(), namespaces.wait_until_ready());
    bridge::part_ip6(&place.bridge, &table_name(&place.bridge)).await;
    let mut kept = Kept::new(table_name(&place.bridge), "NetworkPolicies", rules::FORWARD);
    let mut reports = gate.reports();
    loop {
        let (all, pods) = (policies.all.state(), pods.state());
        if all.is_empty() {
            return;
        }
        gate.prune(&pods);
        let (holders, number, is_new) = reports.take();
        if is_new {
            // Somebody may have removed the table: no Pod begins before it is there again.
            kept.look().await;
        }
        if kept.bring(rules::table(&all, &pods, &holders, &namespaces.state(), place.pods)).await {
            gate.publish(number, &all);
        }
        let changed = async {
            tokio::select! {
                () = policies.changed.wait() => {}
                () = others.wait() => {}
            }
        };
        // A Pod that is about to begin does not wait for the next regular synchronization.
        tokio::select! {
            () = kept.wait(changed) => {}
            () = reports.wait() => {}
        }
    }
}

/// Reports that policies do not act between Pods of the bridge, in the log and by an Event of the node.
fn report_unenforced(client: &Client, node: &str, stop: &CancellationToken) {
    tracing::warn!("{UNENFORCED}");
    let (client, node) = (client.clone(), node.to_owned());
    let warning = async move { node_event::warn(&client, &node, "NetworkPolicyNotEnforced", UNENFORCED).await };
    tokio::spawn(stop.clone().run_until_cancelled_owned(warning));
}

/// Returns whether nothing is left.
async fn remove(bridge: &str) -> bool {
    let name = table_name(bridge);
    // They are declared before they are deleted because deleting needs them to exist.
    let script = |family: &str| format!("add table {family} {name}\ndelete table {family} {name}\n");
    // A kernel without IPv6 has none of its tables.
    let _ = run("nft", &["-f", "-"], &script("ip6")).await;
    let removed = run("nft", &["-f", "-"], &script("ip")).await;
    if let Err(e) = &removed {
        tracing::warn!("the rules of NetworkPolicies cannot be removed: {e}");
    }
    removed.is_ok()
}
