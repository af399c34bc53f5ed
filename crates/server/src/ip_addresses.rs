//! Every cluster IP of a Service is an IPAddress, too, which says whose it is (`pkg/registry/core/service/ipallocator`).
//!
//! Nothing runs: when a Service was written, and before that is answered, what is new is taken in. So who was told of a
//! Service finds its addresses, and who was told that it is gone finds none.

use crate::{
    lazy_informer::{Followed, News},
    service::{ApiServer, Call},
    service_ranges::{self, DEFAULT},
    system_services::SERVICE_RANGE,
};
use futures::{FutureExt, future::BoxFuture};
use http::Method;
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashSet},
    net::Ipv4Addr,
};
use store::{EventKind, Key, Object, Scope, Store};

const SERVICES: &str = "services";
const ADDRESSES: &str = "ipaddresses";
const PATH: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// Whoever makes them upstream.
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// An address, and the Service whose it is or was: namespace and name.
type Candidate = (String, String, String);

/// Follows Services, IPAddresses and ServiceCIDRs.
pub(crate) struct IpAddresses(tokio::sync::Mutex<Followed<3>>);

impl IpAddresses {
    pub(crate) fn new(store: Store) -> Self {
        Self(tokio::sync::Mutex::new(Followed::new(store, [SERVICES, ADDRESSES, service_ranges::STORAGE])))
    }
}

/// Whether a write may leave a Service without its addresses, or addresses without a Service.
pub(crate) fn concern(storage: &str, call: &Call) -> bool {
    match storage {
        SERVICES => true,
        // What is written here itself is settled.
        ADDRESSES | service_ranges::STORAGE => call.user.name != "system:apiserver",
        _ => false,
    }
}

/// Makes what is missing and removes what is too much.
pub(crate) fn settle(server: &ApiServer) -> BoxFuture<'_, ()> {
    async move {
        let mut followed = server.addresses.0.lock().await;
        let news = followed.news();
        if has_lost_its_range(&news) {
            make_range(server).await;
        }
        for (ip, namespace, name) in candidates(&news) {
            let service = server.store.get(&Key::new(SERVICES, namespace.as_str(), name.as_str()));
            let is_its_own = service.is_some_and(|service| addresses(&read(&service)).contains(&ip));
            let there = server.store.get(&Key::new(ADDRESSES, "", ip.as_str())).map(|stored| read(&stored));
            match (is_its_own, there) {
                (true, None) => server.make(PATH, &address(&ip, &namespace, &name)).await,
                (false, Some(there)) if is_ours(&there) && parent(&there) == Some((namespace, name)) => {
                    server.ask(Method::DELETE, &format!("{PATH}/{ip}"), &Value::Null).await;
                }
                _ => {}
            }
        }
    }
    .boxed()
}

fn read(stored: &Object) -> Value {
    serde_json::from_slice(&stored.data).unwrap_or_default()
}

/// The addresses of a Service that has any.
fn addresses(service: &Value) -> Vec<String> {
    let all = service["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    all.filter_map(api::address::ip).map(|ip| ip.to_string()).collect()
}

/// The Service that an IPAddress says it is of.
fn parent(address: &Value) -> Option<(String, String)> {
    let reference = &address["spec"]["parentRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or("");
    (text("group").is_empty() && text("resource") == SERVICES)
        .then(|| (text("namespace").to_owned(), text("name").to_owned()))
}

fn is_ours(address: &Value) -> bool {
    address["metadata"]["labels"][MANAGED_BY] == ALLOCATOR
}

/// Adds the addresses that somebody else has than this Service.
pub(crate) fn of_others(store: &Store, namespace: &str, name: &str, found: &mut HashSet<Ipv4Addr>) {
    for stored in store.list(&Scope::resource(ADDRESSES), None, None).objects {
        let Ok(ip) = stored.key.name.parse::<Ipv4Addr>() else { continue };
        // Most are known by their Services already.
        if !found.contains(&ip) && parent(&read(&stored)).is_none_or(|of| of != (namespace.to_owned(), name.to_owned()))
        {
            found.insert(ip);
        }
    }
}

fn candidates(news: &News<3>) -> BTreeSet<Candidate> {
    let of_service = |stored: &Object| -> Vec<Candidate> {
        let (namespace, name) = (stored.key.namespace.to_string(), stored.key.name.to_string());
        addresses(&read(stored)).into_iter().map(|ip| (ip, namespace.clone(), name.clone())).collect()
    };
    let of = |stored: &Object| match &*stored.key.resource {
        SERVICES => of_service(stored),
        service_ranges::STORAGE => Vec::new(),
        _ => {
            let holder = parent(&read(stored));
            holder.map(|(namespace, name)| (stored.key.name.to_string(), namespace, name)).into_iter().collect()
        }
    };
    match news {
        News::Changes(events) => {
            let both = events.iter().flat_map(|event| event.previous.iter().chain([&event.object]));
            both.flat_map(of).collect()
        }
        News::Everything(lists) => lists.iter().flat_map(|list| &list.objects).flat_map(of).collect(),
    }
}

fn address(ip: &str, namespace: &str, name: &str) -> Value {
    let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": ip, "labels": {FAMILY: family, MANAGED_BY: ALLOCATOR}},
        "spec": {"parentRef": {"resource": SERVICES, "namespace": namespace, "name": name}},
    })
}

/// Whether the ServiceCIDR of the cluster's own range is gone: then it comes back.
fn has_lost_its_range(news: &News<3>) -> bool {
    let News::Changes(events) = news else { return false };
    let is_it = |key: &Key| *key.resource == *service_ranges::STORAGE && *key.name == *DEFAULT;
    events.iter().any(|event| event.kind == EventKind::Delete && is_it(&event.object.key))
}

async fn make_range(server: &ApiServer) {
    let (first, prefix) = SERVICE_RANGE;
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": DEFAULT}, "spec": {"cidrs": [format!("{first}/{prefix}")]}});
    server.ensure_made(RANGES, &range).await;
    let stored = server.store.get(&Key::new(service_ranges::STORAGE, "", DEFAULT)).map(|stored| read(&stored));
    if let Some(mut there) = stored.filter(|there| there["status"]["conditions"].as_array().is_none_or(Vec::is_empty)) {
        let message = "Kubernetes default Service CIDR is ready";
        there["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "",
            "message": message, "lastTransitionTime": crate::write::now()}]});
        server.ask(Method::PUT, &format!("{RANGES}/{DEFAULT}/status"), &there).await;
    }
}

impl ApiServer {
    /// Makes the range of the Services' addresses known, and every address that a Service has already.
    pub async fn bootstrap_addresses(&self) {
        make_range(self).await;
        settle(self).await;
    }
}
