//! EndpointSlices of a Service (`k8s.io/endpointslice`).
//!
//! Endpoints with the same ports share slices. Existing slices are changed as little as possible, because each change
//! is sent to all watchers.

use super::service::{
    HEADLESS, families, hostname, is_headless, is_of_family, pod_reference, ports, should_pod_be_in_endpoints,
};
use crate::{pod_control::new_controller_ref, pod_summary::PodSummary};
use k8s_openapi::{
    api::{
        core::v1::{Service, ServiceSpec},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use std::{collections::BTreeMap, sync::Arc};

/// Label of a slice: its Service.
pub(super) const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a slice: the controller that manages it.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Maximum number of endpoints of a slice (`--max-endpoints-per-slice`).
const MAX_ENDPOINTS: usize = 100;

#[derive(Debug, Default)]
pub(super) struct SliceChanges {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
}

/// Planned state of a slice.
struct SlicePlan {
    existing: Option<Arc<EndpointSlice>>,
    endpoints: Vec<Endpoint>,
    changed: bool,
}

/// Plans the slices of a Service. `existing` are those of its name; `pods` are those that it selects.
pub(super) fn reconcile_slices(
    service: &Service,
    spec: &ServiceSpec,
    pods: &[Arc<PodSummary>],
    existing: &[Arc<EndpointSlice>],
) -> SliceChanges {
    let mut changes = SliceChanges::default();
    let families = families(spec);
    for slice in existing.iter().filter(|slice| !families.contains(&slice.address_type)) {
        changes.delete.push(Arc::clone(slice));
    }
    for family in &families {
        let of_family = existing.iter().filter(|slice| slice.address_type == *family).cloned().collect();
        reconcile_address_family(service, spec, pods, of_family, family, &mut changes);
    }
    changes
}

/// Computes the changes of the slices of one address family (`reconcileByAddressType`).
fn reconcile_address_family(
    service: &Service,
    spec: &ServiceSpec,
    pods: &[Arc<PodSummary>],
    existing: Vec<Arc<EndpointSlice>>,
    family: &str,
    changes: &mut SliceChanges,
) {
    // By ports, in the order of the Service.
    let mut desired_endpoints: Vec<(Vec<EndpointPort>, BTreeMap<String, Endpoint>)> = Vec::new();
    for pod in pods.iter().filter(|pod| should_pod_be_in_endpoints(pod, true)) {
        let endpoint = endpoint(service, spec, pod, family);
        if endpoint.addresses.is_empty() {
            continue;
        }
        let ports = endpoint_ports(spec, pod);
        let at = desired_endpoints.iter().position(|(known, _)| same_ports(known, &ports)).unwrap_or_else(|| {
            desired_endpoints.push((ports, BTreeMap::new()));
            desired_endpoints.len() - 1
        });
        desired_endpoints[at].1.insert(pod.uid.clone(), endpoint);
    }
    let (mut delete, mut of_ports) = (Vec::new(), vec![Vec::new(); desired_endpoints.len()]);
    for slice in existing {
        let ports = slice.ports.clone().unwrap_or_default();
        match desired_endpoints.iter().position(|(known, _)| is_owned_by(&slice, service) && same_ports(known, &ports))
        {
            Some(at) => of_ports[at].push(slice),
            None => delete.push(slice),
        }
    }
    let (mut create, mut unchanged) = (Vec::new(), 0);
    for ((ports, endpoints), slices) in desired_endpoints.into_iter().zip(of_ports) {
        for slice in distribute_endpoints(slices, endpoints) {
            let desired = build_slice(service, spec, family, &ports, &slice);
            match slice.existing {
                None => create.push(desired),
                Some(existing) if slice.endpoints.is_empty() => delete.push(existing),
                Some(existing) => {
                    unchanged += 1;
                    if slice.changed || existing.metadata.labels != desired.metadata.labels {
                        changes.update.push(desired);
                    }
                }
            }
        }
    }
    if unchanged == 0 && create.is_empty() {
        // Keep one slice without endpoints as a placeholder.
        create.push(build_slice(
            service,
            spec,
            family,
            &[],
            &SlicePlan { existing: None, endpoints: vec![], changed: false },
        ));
    }
    // Reuse slices that would be deleted for those that would be created.
    for mut new in create {
        let Some(at) = delete.iter().position(|old| is_owned_by(old, service)) else {
            changes.create.push(new);
            continue;
        };
        let old = delete.swap_remove(at);
        new.metadata.name.clone_from(&old.metadata.name);
        new.metadata.resource_version.clone_from(&old.metadata.resource_version);
        let is_same = old.endpoints == new.endpoints && old.metadata.labels == new.metadata.labels;
        if !is_same || !same_ports(old.ports.as_deref().unwrap_or_default(), new.ports.as_deref().unwrap_or_default()) {
            changes.update.push(new);
        }
    }
    changes.delete.extend(delete);
}

/// Distributes endpoints, keyed by the UIDs of their Pods, over slices: existing ones stay in their slice, new ones
/// fill slices with capacity, first those that change anyway.
fn distribute_endpoints(
    slices: Vec<Arc<EndpointSlice>>,
    mut desired_endpoints: BTreeMap<String, Endpoint>,
) -> Vec<SlicePlan> {
    let mut all: Vec<SlicePlan> = Vec::new();
    for existing in slices {
        let uid = |e: &Endpoint| e.target_ref.as_ref().and_then(|target| target.uid.clone()).unwrap_or_default();
        let endpoints: Vec<Endpoint> =
            existing.endpoints.iter().filter_map(|e| desired_endpoints.remove(&uid(e))).collect();
        let changed = endpoints != existing.endpoints;
        all.push(SlicePlan { existing: Some(existing), endpoints, changed });
    }
    let mut new: Vec<Endpoint> = desired_endpoints.into_values().collect();
    all.sort_by_key(|slice| (!slice.changed, std::cmp::Reverse(slice.endpoints.len())));
    for slice in &mut all {
        // An unchanged slice is only extended if all new endpoints fit into it.
        let remaining = MAX_ENDPOINTS.saturating_sub(slice.endpoints.len());
        if new.is_empty() || remaining == 0 || (!slice.changed && new.len() > remaining) {
            continue;
        }
        slice.endpoints.extend(new.drain(..remaining.min(new.len())));
        slice.changed = true;
    }
    while !new.is_empty() {
        let endpoints = new.drain(..MAX_ENDPOINTS.min(new.len())).collect();
        all.push(SlicePlan { existing: None, endpoints, changed: true });
    }
    all
}

fn build_slice(
    service: &Service,
    spec: &ServiceSpec,
    family: &str,
    ports: &[EndpointPort],
    slice: &SlicePlan,
) -> EndpointSlice {
    let reserved = [LABEL_SERVICE_NAME, MANAGED_BY, HEADLESS];
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.retain(|name, _| !reserved.contains(&name.as_str()));
    if is_headless(spec) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    let name = service.metadata.name.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let metadata = match &slice.existing {
        Some(existing) => ObjectMeta { labels: Some(labels), ..existing.metadata.clone() },
        None => ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: service.metadata.namespace.clone(),
            owner_references: Some(vec![new_controller_ref(service)]),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
    };
    let mut desired = EndpointSlice {
        metadata,
        address_type: family.to_owned(),
        endpoints: slice.endpoints.clone(),
        ports: Some(ports.to_vec()),
    };
    desired.metadata.labels.get_or_insert_default().insert(LABEL_SERVICE_NAME.to_owned(), name);
    desired
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
        target_ref: Some(pod_reference(pod)),
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

/// Returns whether the ports are equal, in any order.
fn same_ports(one: &[EndpointPort], other: &[EndpointPort]) -> bool {
    one.len() == other.len() && one.iter().all(|port| other.contains(port))
}

fn is_owned_by(slice: &EndpointSlice, service: &Service) -> bool {
    let mut owners = slice.metadata.owner_references.iter().flatten();
    owners.any(|o| Some(&o.uid) == service.metadata.uid.as_ref() && o.kind == "Service")
}
