//! IPAddress objects of Services' cluster IPs (`pkg/registry/core/service/ipallocator`).
//!
//! There is no background task: after the write of a Service, and before its response, IPAddresses are reconciled. So
//! clients find the addresses of a Service that they have created, and none of a Service that they have deleted.

use crate::{
    http::loopback_client::LoopbackClient,
    ip_allocator::service_ranges::{self, DEFAULT, SERVICE_RANGE},
    objects::call::Call,
};
use futures::{FutureExt, future::BoxFuture};
use http::Method;
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashSet},
    net::Ipv4Addr,
};
use store::{EventKind, InformerUpdate, Key, LazyInformer, Object, Scope, Store};

const SERVICES: &str = "services";
const ADDRESSES: &str = "ipaddresses";
const PATH: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// Upstream's name of the allocator.
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// An address, and namespace and name of the Service that has or had it.
type Candidate = (String, String, String);

/// Informer of Services, IPAddresses and ServiceCIDRs.
pub(crate) struct IpAddresses(tokio::sync::Mutex<LazyInformer<3>>);

impl IpAddresses {
    pub(crate) fn new(store: Store) -> Self {
        Self(tokio::sync::Mutex::new(LazyInformer::new(store, [SERVICES, ADDRESSES, service_ranges::STORAGE])))
    }
}

/// Whether a write may leave a Service without IPAddresses, or IPAddresses without a Service.
pub(crate) fn requires_reconcile(storage: &str, call: &Call) -> bool {
    match storage {
        SERVICES => true,
        // The reconciler's own writes need no other reconciliation.
        ADDRESSES | service_ranges::STORAGE => call.user.name != "system:apiserver",
        _ => false,
    }
}

/// Creates missing IPAddresses and deletes those without a Service.
pub(crate) fn reconcile<'a>(
    addresses: &'a IpAddresses,
    store: &'a Store,
    client: &'a LoopbackClient,
) -> BoxFuture<'a, ()> {
    async move {
        let mut informer = addresses.0.lock().await;
        let update = informer.take_update();
        if is_default_range_deleted(&update) {
            ensure_default_range(store, client).await;
        }
        for (ip, namespace, name) in candidates(&update) {
            let service = store.get(&Key::new(SERVICES, namespace.as_str(), name.as_str()));
            let is_allocated = service.is_some_and(|service| cluster_ips(&decode(&service)).contains(&ip));
            let existing = store.get(&Key::new(ADDRESSES, "", ip.as_str())).map(|stored| decode(&stored));
            match (is_allocated, existing) {
                (true, None) => client.create_object(PATH, &ip_address(&ip, &namespace, &name)).await,
                (false, Some(existing))
                    if is_managed(&existing) && service_of(&existing) == Some((namespace, name)) =>
                {
                    client.request(Method::DELETE, &format!("{PATH}/{ip}"), &Value::Null).await;
                }
                _ => {}
            }
        }
    }
    .boxed()
}

fn decode(stored: &Object) -> Value {
    serde_json::from_slice(&stored.data).unwrap_or_default()
}

/// Returns the cluster IPs of a Service.
fn cluster_ips(service: &Value) -> Vec<String> {
    let all = service["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    all.filter_map(api::address::ip).map(|ip| ip.to_string()).collect()
}

/// Returns namespace and name of the Service that an IPAddress references.
fn service_of(address: &Value) -> Option<(String, String)> {
    let reference = &address["spec"]["parentRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or("");
    (text("group").is_empty() && text("resource") == SERVICES)
        .then(|| (text("namespace").to_owned(), text("name").to_owned()))
}

fn is_managed(address: &Value) -> bool {
    address["metadata"]["labels"][MANAGED_BY] == ALLOCATOR
}

/// Adds the addresses of IPAddresses that do not reference this Service.
pub(crate) fn add_used_by_others(store: &Store, namespace: &str, name: &str, found: &mut HashSet<Ipv4Addr>) {
    for stored in store.list(&Scope::resource(ADDRESSES), None, None).objects {
        let Ok(ip) = stored.key.name.parse::<Ipv4Addr>() else { continue };
        // Decoding is skipped for addresses that are known from Services already.
        if !found.contains(&ip)
            && service_of(&decode(&stored)).is_none_or(|owner| owner != (namespace.to_owned(), name.to_owned()))
        {
            found.insert(ip);
        }
    }
}

fn candidates(update: &InformerUpdate<3>) -> BTreeSet<Candidate> {
    let of_service = |stored: &Object| -> Vec<Candidate> {
        let (namespace, name) = (stored.key.namespace.to_string(), stored.key.name.to_string());
        cluster_ips(&decode(stored)).into_iter().map(|ip| (ip, namespace.clone(), name.clone())).collect()
    };
    let owner = |stored: &Object| match &*stored.key.resource {
        SERVICES => of_service(stored),
        service_ranges::STORAGE => Vec::new(),
        _ => {
            let holder = service_of(&decode(stored));
            holder.map(|(namespace, name)| (stored.key.name.to_string(), namespace, name)).into_iter().collect()
        }
    };
    match update {
        InformerUpdate::Events(events) => {
            let both = events.iter().flat_map(|event| event.previous.iter().chain([&event.object]));
            both.flat_map(owner).collect()
        }
        InformerUpdate::Relist(lists) => lists.iter().flat_map(|list| &list.objects).flat_map(owner).collect(),
    }
}

fn ip_address(ip: &str, namespace: &str, name: &str) -> Value {
    let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": ip, "labels": {FAMILY: family, MANAGED_BY: ALLOCATOR}},
        "spec": {"parentRef": {"resource": SERVICES, "namespace": namespace, "name": name}},
    })
}

/// Whether the default ServiceCIDR was deleted; it is created again then.
fn is_default_range_deleted(update: &InformerUpdate<3>) -> bool {
    let InformerUpdate::Events(events) = update else { return false };
    let is_it = |key: &Key| *key.resource == *service_ranges::STORAGE && *key.name == *DEFAULT;
    events.iter().any(|event| event.kind == EventKind::Delete && is_it(&event.object.key))
}

pub(crate) async fn ensure_default_range(store: &Store, client: &LoopbackClient) {
    let (first, prefix) = SERVICE_RANGE;
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": DEFAULT}, "spec": {"cidrs": [format!("{first}/{prefix}")]}});
    client.ensure_created(RANGES, &range).await;
    let stored = store.get(&Key::new(service_ranges::STORAGE, "", DEFAULT)).map(|stored| decode(&stored));
    if let Some(mut existing) =
        stored.filter(|existing| existing["status"]["conditions"].as_array().is_none_or(Vec::is_empty))
    {
        let message = "Kubernetes default Service CIDR is ready";
        existing["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "",
            "message": message, "lastTransitionTime": crate::http::clock::now()}]});
        client.request(Method::PUT, &format!("{RANGES}/{DEFAULT}/status"), &existing).await;
    }
}
