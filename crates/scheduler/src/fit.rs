//! Which node a Pod goes to, and why it goes to none: pure.

use crate::ask::{Ask, Rank};
use crate::cluster::Cluster;
use crate::neighbours::Neighbours;
use crate::preempt::{NoRoom, Preemption, preempt};
use crate::storage::Orders;
use crate::{message, missing};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// What is to be done with a Pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It goes to this node.
    Node(String),
    /// It goes to a node once its volumes are bound, and this is to be written for that.
    Volumes(Box<Orders>),
    /// It fits nowhere; the message is upstream's. No place is kept for it any more.
    Unschedulable(String),
    /// The same, and the place that is kept for it, if any, stays so.
    Waits(String),
    /// It will fit when others have gone.
    Preempts(Box<Preemption>),
}

/// Decides upon a Pod.
#[must_use]
pub fn fit(pod: &Pod, cluster: &Cluster) -> Decision {
    if cluster.node_count() == 0 {
        return Decision::Unschedulable(message::NO_NODES.into());
    }
    if let Some(why) = missing::wait_for(pod, cluster.node_count()) {
        return Decision::Unschedulable(why);
    }
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let claims = match cluster.storage.claims_of(pod) {
        Ok(claims) => claims,
        Err(why) => {
            return unusable(spec, cluster.node_count(), &why);
        }
    };
    let is_claimed = claims.exclusive().any(|claim| cluster.uses_claim(&claim));
    let mut ask = Ask::of(spec, claims, is_claimed, Neighbours::of(pod, spec, cluster));
    let mut refusals = Vec::new();
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let (kept, nominated) = (cluster.kept_from(uid, api::pod::priority(pod)), cluster.nominated_node(uid));
    let mut best: Option<((bool, Rank), &str, Orders)> = None;
    for (name, facts, used) in cluster.nodes() {
        let kept = kept.get(name).map(Vec::as_slice).unwrap_or_default();
        match ask.filter_beside(kept, name, facts, used) {
            Err(refusal) => refusals.push(refusal),
            Ok(orders) => {
                // Others have gone from the node that it is nominated to: no other one is better.
                let rank = (nominated == Some(name), ask.rank(facts, used));
                // Nodes come in the order of their names: of equals the first one stays.
                if best.as_ref().is_none_or(|(other, ..)| rank > *other) {
                    best = Some((rank, name, orders));
                }
            }
        }
    }
    match best {
        Some((_, name, orders)) if orders.is_ready() => Decision::Node(name.to_owned()),
        Some((.., orders)) => Decision::Volumes(Box::new(orders)),
        None => match preempt(pod, ask, cluster, &refusals) {
            Ok(room) => Decision::Preempts(Box::new(room)),
            Err(NoRoom { why, keeps_place: true }) => Decision::Waits(why),
            Err(NoRoom { why, keeps_place: false }) => Decision::Unschedulable(why),
        },
    }
}

/// A Pod whose claims cannot be used at all, whoever goes.
fn unusable(spec: &PodSpec, nodes: usize, why: &str) -> Decision {
    let message = message::nowhere_by_nodes(nodes, why, missing::never_preempts(spec));
    if missing::never_preempts(spec) { Decision::Waits(message) } else { Decision::Unschedulable(message) }
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
