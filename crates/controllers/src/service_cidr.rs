//! ServiceCIDR controller: sets the condition `Ready`, and keeps ranges while an allocated address is in no other
//! range (`pkg/controller/servicecidrs`).

use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use api::object_key::object_key;
use futures::stream::{self, StreamExt};
use informer::{WatchEvent, watch, watch_lean};
use ipnet::IpNet;
use k8s_openapi::{
    api::networking::v1::{IPAddress, ServiceCIDR},
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    runtime::watcher::Config,
};
use parking_lot::Mutex;
use std::{collections::HashMap, net::IpAddr, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Label of addresses that are allocated for Services. Other IPAddresses do not keep a range.
const MANAGED_BY_IP_ALLOCATOR: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// Time before the finalizer is removed, because an address may just be allocated (`deletionGracePeriod`).
const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(10);

enum Event {
    Range(WatchEvent<ServiceCIDR>),
    /// An address was released, or the relist may have shown other changes.
    Released,
}

struct ServiceCidrController {
    client: Client,
    /// Ranges that are being deleted, and when that was observed.
    deleting: Mutex<HashMap<String, Instant>>,
}

fn networks(range: &ServiceCIDR) -> Vec<IpNet> {
    let all = range.spec.as_ref().and_then(|spec| spec.cidrs.as_ref()).into_iter().flatten();
    all.filter_map(|cidr| cidr.parse::<IpNet>().ok()).map(|net| net.trunc()).collect()
}

fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Returns whether other ranges contain the whole range.
fn is_covered(range: &ServiceCIDR, all: &[ServiceCIDR]) -> bool {
    let others = all.iter().filter(|other| name(&other.metadata) != name(&range.metadata));
    let others: Vec<IpNet> = others.flat_map(networks).collect();
    networks(range).iter().all(|net| others.iter().any(|other| other.contains(net)))
}

/// Returns whether one of the addresses is in no other range.
fn has_orphans(range: &ServiceCIDR, all: &[ServiceCIDR], addresses: &[IpAddr]) -> bool {
    let (same_name, others) = all.iter().partition::<Vec<_>, _>(|other| name(&other.metadata) == name(&range.metadata));
    let is_in = |ranges: &[&ServiceCIDR], ip: &IpAddr| {
        ranges.iter().any(|range| networks(range).iter().any(|net| net.contains(ip)))
    };
    addresses.iter().any(|ip| is_in(&same_name, ip) && !is_in(&others, ip))
}

impl ServiceCidrController {
    fn ranges(&self) -> Api<ServiceCIDR> {
        Api::all(self.client.clone())
    }

    /// Returns whether no address would be left without a range.
    async fn can_delete(&self, range: &ServiceCIDR) -> Result<bool, kube::Error> {
        let all = self.ranges().list(&ListParams::default()).await?.items;
        if is_covered(range, &all) {
            return Ok(true);
        }
        let listed = Api::<IPAddress>::all(self.client.clone()).list(&ListParams::default()).await?;
        let of_services = |address: &&IPAddress| {
            let (label, allocator) = MANAGED_BY_IP_ALLOCATOR;
            address.metadata.labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|by| by == allocator)
        };
        let addresses = listed.items.iter().filter(of_services).filter_map(|ip| name(&ip.metadata).parse().ok());
        let addresses: Vec<IpAddr> = addresses.collect();
        Ok(!has_orphans(range, &all, &addresses))
    }

    /// Sets the condition `Ready` unless it is current.
    async fn set_ready_condition(&self, mut range: ServiceCIDR, ready: bool) -> Result<(), kube::Error> {
        let (status, reason, message) = if ready {
            ("True", "", "Kubernetes Service CIDR is ready")
        } else {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            ("False", "Terminating", message)
        };
        let conditions = range.status.get_or_insert_default().conditions.get_or_insert_default();
        let old_condition = conditions.iter().find(|condition| condition.type_ == "Ready");
        if old_condition
            .is_some_and(|c| (c.status.as_str(), c.reason.as_str(), c.message.as_str()) == (status, reason, message))
        {
            return Ok(());
        }
        conditions.retain(|condition| condition.type_ != "Ready");
        conditions.push(Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(Timestamp::now()),
            observed_generation: None,
        });
        let name = name(&range.metadata).to_owned();
        ignore_not_found_or_conflict(self.ranges().replace_status(&name, &PostParams::default(), &range).await)?;
        Ok(())
    }
}

impl Controller for ServiceCidrController {
    type Event = Event;

    const NAME: &'static str = names::SERVICE_CIDR;
    /// Of two ranges that cover each other, only one may be deleted.
    const WORKERS: usize = 1;

    fn observe(&self, event: Event, now: Instant) -> Vec<String> {
        let mut deleting = self.deleting.lock();
        let all = |deleting: &HashMap<String, Instant>| deleting.keys().cloned().collect::<Vec<_>>();
        match event {
            Event::Range(WatchEvent::Applied(range)) => {
                let key = object_key(&range.metadata);
                if range.metadata.deletion_timestamp.is_some() {
                    deleting.entry(key.clone()).or_insert(now);
                }
                // A new range may contain the addresses of those being deleted.
                all(&deleting).into_iter().chain([key]).collect()
            }
            Event::Range(WatchEvent::Deleted(range)) => {
                deleting.remove(&object_key(&range.metadata));
                vec![]
            }
            Event::Range(WatchEvent::Listed(keys)) => {
                deleting.retain(|key, _| keys.contains(key));
                vec![]
            }
            Event::Released => all(&deleting),
        }
    }

    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(mut range) = self.ranges().get_opt(key).await? else {
            self.deleting.lock().remove(key);
            return Ok(None);
        };
        let held = range.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if range.metadata.deletion_timestamp.is_none() {
            if !held {
                range.metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
                // The watch enqueues the range again, and then it becomes ready.
                ignore_not_found_or_conflict(self.ranges().replace(key, &PostParams::default(), &range).await)?;
                return Ok(None);
            }
            self.set_ready_condition(range, true).await?;
            return Ok(None);
        }
        if !held {
            return Ok(None);
        }
        if !self.can_delete(&range).await? {
            self.set_ready_condition(range, false).await?;
            return Ok(None);
        }
        let since = *self.deleting.lock().entry(key.to_owned()).or_insert(now);
        let left = DELETION_GRACE_PERIOD.saturating_sub(now.duration_since(since));
        if !left.is_zero() {
            return Ok(Some(left));
        }
        range.metadata.finalizers.iter_mut().for_each(|all| all.retain(|finalizer| finalizer != FINALIZER));
        ignore_not_found_or_conflict(self.ranges().replace(key, &PostParams::default(), &range).await)?;
        Ok(None)
    }
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let ranges = watch_lean(Api::all(clients.shared()), Config::default()).map(Event::Range);
    let addresses = watch::<IPAddress>(Api::all(clients.shared()), Config::default());
    // A new address cannot unblock a deletion, and ranges within the grace period are requeued anyway.
    let released = addresses
        .filter_map(|change| async move { (!matches!(change, WatchEvent::Applied(_))).then_some(Event::Released) });
    let events = stream::select(ranges, released).boxed();
    let controller = ServiceCidrController {
        client: clients.for_service_account("service-cidrs-controller"),
        deleting: Mutex::default(),
    };
    worker::run(controller, events, stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn range(name: &str, cidrs: &[&str]) -> ServiceCIDR {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}})).unwrap()
    }

    #[track_caller]
    fn check(ranges: &[&str], others: &[&[&str]], addresses: &[&str], covered: bool, orphans: bool) {
        let ranges = range("own", ranges);
        let mut all: Vec<ServiceCIDR> =
            others.iter().enumerate().map(|(i, cidrs)| range(&format!("r{i}"), cidrs)).collect();
        all.push(ranges.clone());
        let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        assert_eq!((is_covered(&ranges, &all), has_orphans(&ranges, &all, &addresses)), (covered, orphans));
    }

    #[test]
    fn range_is_needed_by_addresses_in_no_other_range() {
        check(&["10.97.0.0/24"], &[], &[], false, false);
        check(&["10.97.0.0/24"], &[], &["10.96.0.1"], false, false);
        check(&["10.97.0.0/24"], &[], &["10.97.0.1"], false, true);
        check(&["10.97.0.0/24"], &[&["10.97.0.0/24"]], &["10.97.0.1"], true, false);
        check(&["10.97.0.0/24"], &[&["10.96.0.0/12"]], &["10.97.0.1"], true, false);
        check(&["10.97.0.0/24"], &[&["10.97.0.0/25"]], &["10.97.0.1"], false, false);
        check(&["10.97.0.0/24"], &[&["10.97.0.0/25"]], &["10.97.0.1", "10.97.0.200"], false, true);
        check(&["10.97.0.0/24", "2001:db8::/64"], &[&["10.97.0.0/16"]], &["10.97.0.1"], false, false);
        check(&["10.97.0.0/24", "2001:db8::/64"], &[&["10.97.0.0/16"]], &["2001:db8::1"], false, true);
        // Host bits are ignored.
        check(&["10.97.0.7/24"], &[], &["10.97.0.1"], false, true);
    }
}
