//! Leads the traffic of Services to their endpoints, as upstream's kube-proxy does with nftables.
//!
//! What is to be is one pure function of the API's objects ([`rules`]); what differs from what is goes to the kernel in
//! one transaction ([`table`]). When Podium ends, the rules stay, as the Pods do.

mod rules;
mod stale;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod traffic;

use crate::follow::Followed;
use crate::program::run;
use crate::{Error, bridge};
pub(crate) use rules::Place;
use std::time::Duration;
use table::Table;
use tokio::time::Instant;

/// How often it is looked whether somebody has removed the table.
const LOOK: Duration = Duration::from_secs(60);
/// Longest wait after a failure.
const LONGEST: Duration = Duration::from_secs(30);
/// A transaction may take one part in this many of the time: a burst of changes costs few of them.
const SHARE: u32 = 10;

/// How the table of a bridge's Services is called.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-services")
}

/// Leads traffic for ever.
pub(crate) async fn lead(mut followed: Followed, node: &str, place: Place) {
    followed.listed().await;
    let name = &table_name(&place.bridge);
    let (mut is, mut failures): (Option<Table>, u32) = (None, 0);
    let mut before: Option<Vec<traffic::ServicePort>> = None;
    loop {
        let began = Instant::now();
        let now = traffic::traffic(&followed.services(), &followed.slices(), node);
        let shall = rules::table(&now, &place);
        match bring(name, &shall, is.as_ref()).await {
            Ok(()) => {
                // Not before the rules that keep others from it.
                bridge::route_loopback(&place.bridge);
                (is, failures) = (Some(shall), 0);
                // What another Podium led before counts as led.
                stale::forget(stale::stale(before.as_deref().unwrap_or(&now), &now)).await;
                before = Some(now);
            }
            Err(e) => {
                // Whatever is there now is replaced as a whole next time.
                (is, failures) = (None, failures.saturating_add(1));
                tracing::warn!("the rules of Services cannot be written: {e}");
            }
        }
        if failures > 0 {
            tokio::time::sleep(Duration::from_secs(1).saturating_mul(1 << failures.min(8)).min(LONGEST)).await;
            continue;
        }
        let next = Instant::now() + began.elapsed() * SHARE;
        tokio::select! {
            () = followed.changed() => tokio::time::sleep_until(next).await,
            () = tokio::time::sleep(LOOK) => {
                if run("nft", &["list", "chain", "ip", name, "prerouting"], "").await.is_err() {
                    tracing::warn!("somebody has removed the rules of Services: they are made anew");
                    is = None;
                }
            }
        }
    }
}

/// Makes one table of the other.
async fn bring(name: &str, shall: &Table, is: Option<&Table>) -> Result<(), Error> {
    match shall.script(name, is) {
        script if script.is_empty() => Ok(()),
        script => run("nft", &["-f", "-"], &script).await.map(drop),
    }
}
