//! Lets through to Pods and from them what NetworkPolicies allow.
//!
//! What is to be is one pure function of the API's objects ([`rules`]), which goes to the kernel as the rules of
//! Services do ([`crate::kept`]). Where there is no policy there is no table, and nobody looks at Pods. When Podium ends,
//! the rules stay, as the Pods do.

mod allowed;
mod members;
mod rules;
#[cfg(test)]
mod tests;

use crate::bridge;
use crate::follow::{Changed, follow};
use crate::kept::Kept;
use crate::program::run;
use futures::stream;
use ipnet::Ipv4Net;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

/// How the table of a bridge's policies is called.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-policies")
}

/// Where policies act.
#[derive(Debug, Clone)]
pub(crate) struct Place {
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

/// Lets them act for ever. `client` lists and watches policies, and Pods and namespaces where there are some.
pub(crate) async fn lead(client: &Client, place: Place, stop: &CancellationToken) {
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
            Box::pin(act(client, &place, &mut policies, stop)).await;
        }
    }
}

/// Lets policies act until there is none any more.
async fn act(client: &Client, place: &Place, policies: &mut Policies, stop: &CancellationToken) {
    if !place.sees_bridge {
        tracing::warn!("NetworkPolicies do not act between Pods of this node: it takes the kernel's br_netfilter");
    }
    let stop = stop.child_token();
    let _ends_with_this = stop.clone().drop_guard();
    let (pods, of_pods) = follow(Api::all(client.clone()), members::trim);
    let (namespaces, of_namespaces) = follow(Api::all(client.clone()), members::trim_namespace);
    let mut others = Changed::by(stream::select(of_pods, of_namespaces), &stop);
    let _ = tokio::join!(pods.wait_until_ready(), namespaces.wait_until_ready());
    bridge::part_ip6(&place.bridge, &table_name(&place.bridge)).await;
    let mut kept = Kept::new(table_name(&place.bridge), "NetworkPolicies", rules::FORWARD);
    loop {
        let all = policies.all.state();
        if all.is_empty() {
            return;
        }
        kept.bring(rules::table(&all, &pods.state(), &namespaces.state(), place.pods)).await;
        let changed = async {
            tokio::select! {
                () = policies.changed.wait() => {}
                () = others.wait() => {}
            }
        };
        kept.wait(changed).await;
    }
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
