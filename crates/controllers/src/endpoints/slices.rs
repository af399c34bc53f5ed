//! The EndpointSlices of a Service, as they shall be (`k8s.io/endpointslice`).
//!
//! Pods that are reached by the same ports share slices. What is there is changed as little as possible: each change
//! goes to everybody who watches.

use super::address::{HEADLESS, families, hostname, is_endpoint, is_headless, is_of_family, ports, target};
use crate::pod_control::new_controller_ref;
use crate::pod_summary::PodSummary;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose slice it is.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
/// Who made it.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// A slice has no more endpoints.
const MOST: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) make: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) remove: Vec<Arc<EndpointSlice>>,
}

/// A slice while it is decided what it shall be.
struct Slice {
    is: Option<Arc<EndpointSlice>>,
    endpoints: Vec<Endpoint>,
    changed: bool,
}

/// `existing` are those that were made for a Service of this name; `pods` are those that it selects.
pub(super) fn slices(
    service: &Service,
    spec: &ServiceSpec,
    pods: &[Arc<PodSummary>],
    existing: &[Arc<EndpointSlice>],
) -> Changes {
    let mut changes = Changes::default();
    let families = families(spec);
    for slice in existing.iter().filter(|slice| !families.contains(&slice.address_type)) {
        changes.remove.push(Arc::clone(slice));
    }
    for family in &families {
        let of_family = existing.iter().filter(|slice| slice.address_type == *family).cloned().collect();
        of_a_family(service, spec, pods, of_family, family, &mut changes);
    }
    changes
}

fn of_a_family(
    service: &Service,
    spec: &ServiceSpec,
    pods: &[Arc<PodSummary>],
    existing: Vec<Arc<EndpointSlice>>,
    family: &str,
    changes: &mut Changes,
) {
    // By ports, in the order of the Service.
    let mut wanted: Vec<(Vec<EndpointPort>, BTreeMap<String, Endpoint>)> = Vec::new();
    for pod in pods.iter().filter(|pod| is_endpoint(pod, true)) {
        let endpoint = endpoint(service, spec, pod, family);
        if endpoint.addresses.is_empty() {
            continue;
        }
        let ports = endpoint_ports(spec, pod);
        let at = wanted.iter().position(|(known, _)| same(known, &ports)).unwrap_or_else(|| {
            wanted.push((ports, BTreeMap::new()));
            wanted.len() - 1
        });
        wanted[at].1.insert(pod.uid.clone(), endpoint);
    }
    let (mut remove, mut of_ports) = (Vec::new(), vec![Vec::new(); wanted.len()]);
    for slice in existing {
        let ports = slice.ports.clone().unwrap_or_default();
        match wanted.iter().position(|(known, _)| is_own(&slice, service) && same(known, &ports)) {
            Some(at) => of_ports[at].push(slice),
            None => remove.push(slice),
        }
    }
    let (mut make, mut kept) = (Vec::new(), 0);
    for ((ports, endpoints), slices) in wanted.into_iter().zip(of_ports) {
        for slice in filled(slices, endpoints) {
            let shall = shall(service, spec, family, &ports, &slice);
            match slice.is {
                None => make.push(shall),
                Some(is) if slice.endpoints.is_empty() => remove.push(is),
                Some(is) => {
                    kept += 1;
                    if slice.changed || is.metadata.labels != shall.metadata.labels {
                        changes.update.push(shall);
                    }
                }
            }
        }
    }
    if kept == 0 && make.is_empty() {
        // One says that there is none.
        make.push(shall(service, spec, family, &[], &Slice { is: None, endpoints: vec![], changed: false }));
    }
    // One that goes becomes one that comes.
    for mut new in make {
        let Some(at) = remove.iter().position(|old| is_own(old, service)) else {
            changes.make.push(new);
            continue;
        };
        let old = remove.swap_remove(at);
        new.metadata.name.clone_from(&old.metadata.name);
        new.metadata.resource_version.clone_from(&old.metadata.resource_version);
        let is_same = old.endpoints == new.endpoints && old.metadata.labels == new.metadata.labels;
        if !is_same || !same(old.ports.as_deref().unwrap_or_default(), new.ports.as_deref().unwrap_or_default()) {
            changes.update.push(new);
        }
    }
    changes.remove.extend(remove);
}

/// The slices with these endpoints, by the UIDs of their Pods: each stays where it is, and others come where there is
/// room, first into what changes anyway.
fn filled(slices: Vec<Arc<EndpointSlice>>, mut wanted: BTreeMap<String, Endpoint>) -> Vec<Slice> {
    let mut all: Vec<Slice> = Vec::new();
    for is in slices {
        let uid = |e: &Endpoint| e.target_ref.as_ref().and_then(|target| target.uid.clone()).unwrap_or_default();
        let endpoints: Vec<Endpoint> = is.endpoints.iter().filter_map(|e| wanted.remove(&uid(e))).collect();
        let changed = endpoints != is.endpoints;
        all.push(Slice { is: Some(is), endpoints, changed });
    }
    let mut new: Vec<Endpoint> = wanted.into_values().collect();
    all.sort_by_key(|slice| (!slice.changed, std::cmp::Reverse(slice.endpoints.len())));
    for slice in &mut all {
        // A slice that does not change is only changed when all fit into it.
        let room = MOST.saturating_sub(slice.endpoints.len());
        if new.is_empty() || room == 0 || (!slice.changed && new.len() > room) {
            continue;
        }
        slice.endpoints.extend(new.drain(..room.min(new.len())));
        slice.changed = true;
    }
    while !new.is_empty() {
        let endpoints = new.drain(..MOST.min(new.len())).collect();
        all.push(Slice { is: None, endpoints, changed: true });
    }
    all
}

fn shall(service: &Service, spec: &ServiceSpec, family: &str, ports: &[EndpointPort], slice: &Slice) -> EndpointSlice {
    let reserved = [SERVICE, MANAGED_BY, HEADLESS];
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.retain(|name, _| !reserved.contains(&name.as_str()));
    if is_headless(spec) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    let name = service.metadata.name.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let metadata = match &slice.is {
        Some(is) => ObjectMeta { labels: Some(labels), ..is.metadata.clone() },
        None => ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: service.metadata.namespace.clone(),
            owner_references: Some(vec![new_controller_ref(service)]),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
    };
    let mut shall = EndpointSlice {
        metadata,
        address_type: family.to_owned(),
        endpoints: slice.endpoints.clone(),
        ports: Some(ports.to_vec()),
    };
    shall.metadata.labels.get_or_insert_default().insert(SERVICE.to_owned(), name);
    shall
}

fn endpoint(service: &Service, spec: &ServiceSpec, pod: &PodSummary, family: &str) -> Endpoint {
    let serving = pod.ready.is_some();
    let ready = spec.publish_not_ready_addresses == Some(true) || (serving && !pod.terminating);
    Endpoint {
        addresses: pod.network.ips.iter().filter(|ip| is_of_family(ip, family)).cloned().collect(),
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(pod.terminating),
        }),
        hostname: hostname(service, pod),
        node_name: pod.node.clone(),
        target_ref: Some(target(pod)),
        ..Endpoint::default()
    }
}

fn endpoint_ports(spec: &ServiceSpec, pod: &PodSummary) -> Vec<EndpointPort> {
    let all = ports(spec, pod).into_iter().map(|(port, number)| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(number),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    all.collect()
}

/// Whether these are the same ports, in whatever order.
fn same(one: &[EndpointPort], other: &[EndpointPort]) -> bool {
    one.len() == other.len() && one.iter().all(|port| other.contains(port))
}

fn is_own(slice: &EndpointSlice, service: &Service) -> bool {
    let mut owners = slice.metadata.owner_references.iter().flatten();
    owners.any(|o| Some(&o.uid) == service.metadata.uid.as_ref() && o.kind == "Service")
}
