//! Load balancer controller: assigns addresses of a node-local pool to Services of type LoadBalancer, without a cloud
//! provider (`k8s.io/cloud-provider/controllers/service`). The node's Service rules forward their packets.
//!
//! Other controllers, such as MetalLB, are not disturbed: existing addresses are kept, and Services with a
//! `loadBalancerClass` are ignored.

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    names,
    pod_control::error_message,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service};
use kube::{Api, Client, Resource, ResourceExt, api::PostParams};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    net::Ipv4Addr,
    time::Duration,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

enum Event {
    Service(CacheEvent<Service>),
    /// An assigned address is no longer needed.
    AddressReleased,
}

struct LoadBalancerController {
    client: Client,
    recorder: EventRecorder,
    pool: Ipv4Net,
    services: SharedInformer<Service>,
    /// Assigned addresses, whether or not the informer has observed them.
    assigned: Mutex<HashMap<String, Ipv4Addr>>,
    /// Sends [`Event::AddressReleased`].
    released: mpsc::UnboundedSender<()>,
}

/// Returns whether the Service needs an address of this controller.
fn needs_address(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    service.metadata.deletion_timestamp.is_none()
        && spec.is_some_and(|s| s.type_.as_deref() == Some("LoadBalancer") && s.load_balancer_class.is_none())
}

/// Returns the ingress points of the status.
fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default()
}

/// Returns the IPv4 addresses of the status.
fn addresses(service: &Service) -> impl Iterator<Item = Ipv4Addr> {
    ingress(service).iter().filter_map(|ingress| ingress.ip.as_ref()?.parse().ok())
}

/// Returns `spec.loadBalancerIP`.
fn requested_ip(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.load_balancer_ip.as_deref().filter(|ip| !ip.is_empty())
}

/// Why a Service gets no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum AllocationError {
    #[error("all addresses of {0} are taken")]
    PoolExhausted(Ipv4Net),
    #[error("the address {ip} is not one of {pool}")]
    NotInPool { ip: Ipv4Addr, pool: Ipv4Net },
    #[error("the address {0} is taken")]
    Taken(Ipv4Addr),
    #[error("{0:?} is not an IPv4 address")]
    InvalidAddress(String),
}

/// Chooses an address of the pool; `None` if the Service needs no new one.
fn allocate(service: &Service, pool: Ipv4Net, taken: &BTreeSet<Ipv4Addr>) -> Result<Option<Ipv4Addr>, AllocationError> {
    let current = addresses(service).find(|ip| pool.contains(ip));
    let others = current.is_none() && !ingress(service).is_empty();
    let Some(requested) = requested_ip(service) else {
        if current.is_some() || others {
            return Ok(None);
        }
        let free = pool.hosts().find(|ip| !taken.contains(ip));
        return free.map(Some).ok_or(AllocationError::PoolExhausted(pool));
    };
    match requested.parse::<Ipv4Addr>() {
        Ok(ip) if current == Some(ip) || others => Ok(None),
        Ok(ip) if !pool.contains(&ip) => Err(AllocationError::NotInPool { ip, pool }),
        Ok(ip) if taken.contains(&ip) => Err(AllocationError::Taken(ip)),
        Ok(ip) => Ok(Some(ip)),
        Err(_) => Err(AllocationError::InvalidAddress(requested.to_owned())),
    }
}

impl LoadBalancerController {
    /// Returns the addresses of other Services.
    fn allocated(&self, assigned: &HashMap<String, Ipv4Addr>, but: &str) -> BTreeSet<Ipv4Addr> {
        let assigned = assigned.iter().filter(|(key, _)| *key != but).map(|(_, ip)| *ip);
        let all = self.services.all();
        let shown = all.iter().filter(|service| key(service.as_ref()) != but).flat_map(|s| addresses(s));
        assigned.chain(shown).collect()
    }

    /// Allocates an address, if the Service has none.
    fn allocate(&self, key: &str, service: &Service) -> Result<Option<Ipv4Addr>, AllocationError> {
        let mut assigned = self.assigned.lock();
        let allocated = allocate(service, self.pool, &self.allocated(&assigned, key))?;
        // Record before the write, which may succeed although its answer is lost. The address in the status wins.
        match allocated.or_else(|| addresses(service).find(|ip| self.pool.contains(ip))) {
            Some(ip) => drop(assigned.insert(key.to_owned(), ip)),
            None => self.release(&mut assigned, key),
        }
        Ok(allocated)
    }

    /// Releases the address of a Service, which can then be assigned to a pending one.
    fn release(&self, assigned: &mut HashMap<String, Ipv4Addr>, key: &str) {
        if assigned.remove(key).is_some() {
            let _ = self.released.send(());
        }
    }

    /// Returns the keys of Services without an address.
    fn pending(&self) -> Vec<String> {
        let all = self.services.all().into_iter();
        all.filter(|s| needs_address(s) && addresses(s).next().is_none()).map(|s| key(s.as_ref())).collect()
    }

    async fn assign(&self, service: &Service, ip: Ipv4Addr) -> Result<(), kube::Error> {
        let about = service.object_ref(&());
        self.recorder.record(&about, false, "EnsuringLoadBalancer", "Ensuring load balancer").await;
        let mut new = service.clone();
        let ingress = LoadBalancerIngress { ip: Some(ip.to_string()), ..LoadBalancerIngress::default() };
        new.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress: Some(vec![ingress]) });
        let api: Api<Service> = Api::namespaced(self.client.clone(), &service.namespace().unwrap_or_default());
        api.replace_status(&service.name_any(), &PostParams::default(), &new).await?;
        self.recorder.record(&about, false, "EnsuredLoadBalancer", "Ensured load balancer").await;
        Ok(())
    }

    async fn record_failure(&self, service: &Service, text: &str) {
        let message = format!("Error syncing load balancer: failed to ensure load balancer: {text}");
        self.recorder.record(&service.object_ref(&()), true, "SyncLoadBalancerFailed", &message).await;
    }
}

impl Controller for LoadBalancerController {
    type Event = Event;

    const NAME: &'static str = names::SERVICE_LB;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        let Event::Service(CacheEvent::Changed { before, after }) = event else { return self.pending() };
        let had = before.as_ref().is_some_and(|service| addresses(service).next().is_some());
        let has = after.as_ref().is_some_and(|service| addresses(service).next().is_some());
        let service_key =
            before.iter().chain(&after).last().filter(|s| needs_address(s) || had).map(|s| key(s.as_ref()));
        if let Some(service_key) =
            service_key.as_ref().filter(|_| !after.as_ref().is_some_and(|service| needs_address(service)))
        {
            self.release(&mut self.assigned.lock(), service_key);
        }
        // A released address can be assigned to a pending Service.
        let others = if had && !has { self.pending() } else { vec![] };
        service_key.into_iter().chain(others).collect()
    }

    async fn reconcile(&self, key: &str, _now: Instant) -> Result<Option<Duration>, kube::Error> {
        if !self.services.has_synced() {
            return Ok(None);
        }
        let Some(service) = self.services.get_by_key(key).filter(|s| needs_address(s)) else {
            self.release(&mut self.assigned.lock(), key);
            return Ok(None);
        };
        match self.allocate(key, &service) {
            Ok(Some(ip)) => {
                if let Err(e) = ignore_not_found_or_conflict(self.assign(&service, ip).await) {
                    self.record_failure(&service, &error_message(&e)).await;
                    return Err(e);
                }
            }
            Ok(None) => {}
            Err(error) => self.record_failure(&service, &error.to_string()).await,
        }
        Ok(None)
    }
}

/// Subscribes to the informer when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    services: SharedInformer<Service>,
    pool: Ipv4Net,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let (released, receiver) = mpsc::unbounded_channel();
    let receiver = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    let receiver = receiver.map(|()| Event::AddressReleased);
    let events = stream::select(services.subscribe().map(Event::Service), receiver).boxed();
    let client = clients.for_service_account("service-controller");
    let recorder = EventRecorder::new(client.clone(), "service-controller");
    let controller = LoadBalancerController { client, recorder, pool, services, assigned: Mutex::default(), released };
    worker::run(controller, events, stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(request: &str, has: &Value) -> Service {
        serde_json::from_value(
            json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "loadBalancerIP": request},
            "status": {"loadBalancer": {"ingress": has}}}),
        )
        .unwrap()
    }

    #[test]
    fn service_gets_the_first_free_or_requested_address() {
        let check = |request: &str, has: Value, taken: &[&str], expected: Result<Option<&str>, &str>| {
            let taken = taken.iter().map(|ip| ip.parse().unwrap()).collect();
            let chosen = allocate(&service(request, &has), "10.9.8.0/30".parse().unwrap(), &taken);
            let expected = expected.map(|ip| ip.map(|ip| ip.parse().unwrap())).map_err(str::to_owned);
            assert_eq!(chosen.map_err(|error| error.to_string()), expected, "{request:?}, has {has}, {taken:?} taken");
        };
        check("", json!([]), &[], Ok(Some("10.9.8.1")));
        check("", json!([]), &["10.9.8.1"], Ok(Some("10.9.8.2")));
        check("", json!([]), &["10.9.8.1", "10.9.8.2"], Err("all addresses of 10.9.8.0/30 are taken"));
        check("", json!([{"ip": "10.9.8.2"}]), &[], Ok(None));
        check("10.9.8.2", json!([]), &[], Ok(Some("10.9.8.2")));
        check("10.9.8.2", json!([{"ip": "10.9.8.2"}]), &[], Ok(None));
        check("10.9.8.2", json!([{"ip": "10.9.8.1"}]), &[], Ok(Some("10.9.8.2")));
        check("10.9.8.2", json!([]), &["10.9.8.2"], Err("the address 10.9.8.2 is taken"));
        check("10.9.9.2", json!([]), &[], Err("the address 10.9.9.2 is not one of 10.9.8.0/30"));
        check("fd00::1", json!([]), &[], Err("\"fd00::1\" is not an IPv4 address"));
        // An address of another controller is kept.
        check("", json!([{"ip": "192.0.2.9"}]), &[], Ok(None));
        check("", json!([{"hostname": "balancer.example.com"}]), &[], Ok(None));
        check("192.0.2.9", json!([{"ip": "192.0.2.9"}]), &[], Ok(None));
    }

    #[test]
    fn only_load_balancer_services_without_class_need_addresses() {
        let check = |metadata: Value, spec: Value, expected: bool| {
            let object = json!({"metadata": metadata, "spec": spec});
            assert_eq!(needs_address(&serde_json::from_value(object.clone()).unwrap()), expected, "{object}");
        };
        let balanced = json!({"type": "LoadBalancer"});
        check(json!({}), balanced.clone(), true);
        check(json!({"deletionTimestamp": "2026-11-24T00:00:00Z"}), balanced, false);
        check(json!({}), json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/balancer"}), false);
        check(json!({}), json!({"type": "NodePort"}), false);
    }
}
