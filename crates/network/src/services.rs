//! Leads the traffic of Services to their endpoints, as upstream's kube-proxy does with nftables.
//!
//! What is to be is one pure function of the API's objects ([`rules`]); what differs from what is goes to the kernel in
//! one transaction ([`crate::table`]). When Podium ends, the rules stay, as the Pods do.

mod reserved;
mod rules;
mod stale;
#[cfg(test)]
mod tests;
pub(crate) mod traffic;

use crate::bridge;
use crate::follow::Followed;
use crate::kept::Kept;
use crate::links::Netlink;
use reserved::Reserved;
pub(crate) use rules::Place;
use std::net::Ipv4Addr;

/// How the table of a bridge's Services is called.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-services")
}

/// Leads traffic for ever.
pub(crate) async fn lead(mut followed: Followed, node: &str, place: Place) {
    followed.listed().await;
    let mut kept = Kept::new(table_name(&place.bridge), "Services", "prerouting");
    let mut before: Option<Vec<traffic::ServicePort>> = None;
    loop {
        let reserved = Reserved::new(place.pods, place.services, routers().await);
        let now = traffic::traffic(&followed.services(), &followed.slices(), node, &reserved);
        if kept.bring(rules::table(&now, &place)).await {
            // Not before the rules that keep others from it.
            bridge::route_loopback(&place.bridge);
            // What another Podium led before counts as led.
            stale::forget(stale::stale(before.as_deref().unwrap_or(&now), &now)).await;
            before = Some(now);
        }
        kept.wait(followed.changed()).await;
    }
}

/// The machines through which this one reaches others.
async fn routers() -> Vec<Ipv4Addr> {
    let found = async { Netlink::open()?.gateways().await };
    found.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to list routes: external addresses may be those of routers");
        Vec::new()
    })
}
