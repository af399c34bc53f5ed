//! Endpoints of a Service, the predecessor of EndpointSlices (`pkg/controller/endpoint`).

use super::service::{
    HEADLESS, families, hostname, is_headless, is_of_family, pod_reference, ports, should_pod_be_in_endpoints,
};
use crate::pod_summary::PodSummary;
use k8s_openapi::{
    api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use std::sync::Arc;

/// Label of Endpoints: the controller that manages them.
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "endpoint-controller";
/// Annotation: addresses were truncated.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Maximum number of addresses (`maxCapacity`).
const MAX_ENDPOINTS: usize = 1000;

/// Returns the desired Endpoints, `None` if they need no update. `pods` are those that the Service selects.
pub(super) fn endpoints(
    service: &Service,
    spec: &ServiceSpec,
    pods: &[Arc<PodSummary>],
    existing: Option<&Endpoints>,
) -> Option<Endpoints> {
    let mut subsets = subsets(service, spec, pods);
    let truncated = truncate(&mut subsets);
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(spec) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut desired = existing.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    desired.metadata.labels = Some(labels);
    let annotations = desired.metadata.annotations.get_or_insert_default();
    annotations.remove(OVER_CAPACITY);
    if truncated {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    }
    desired.metadata.annotations = desired.metadata.annotations.filter(|a| !a.is_empty());
    desired.subsets = Some(subsets).filter(|subsets| !subsets.is_empty());
    Some(desired).filter(|desired| existing != Some(desired))
}

/// Groups addresses by their ports (`RepackSubsets`).
fn subsets(service: &Service, spec: &ServiceSpec, pods: &[Arc<PodSummary>]) -> Vec<EndpointSubset> {
    let not_ready_too = spec.publish_not_ready_addresses == Some(true);
    let family = families(spec).into_iter().next().unwrap_or_default();
    let mut all: Vec<EndpointSubset> = Vec::new();
    for pod in pods.iter().filter(|pod| should_pod_be_in_endpoints(pod, not_ready_too)) {
        let Some(ip) = pod.network.ips.iter().find(|ip| is_of_family(ip, &family)) else { continue };
        let ports = endpoint_ports(spec, pod);
        let without = spec.ports.iter().flatten().next().is_none() && is_headless(spec);
        if ports.is_empty() && !without {
            continue;
        }
        let ports = Some(ports).filter(|ports| !ports.is_empty());
        let address = EndpointAddress {
            ip: ip.clone(),
            hostname: hostname(service, pod),
            node_name: pod.node.clone(),
            target_ref: Some(pod_reference(pod)),
        };
        let at = all.iter().position(|subset| subset.ports == ports).unwrap_or_else(|| {
            all.push(EndpointSubset { ports, ..EndpointSubset::default() });
            all.len() - 1
        });
        let ready = not_ready_too || pod.ready.is_some();
        let list = if ready { &mut all[at].addresses } else { &mut all[at].not_ready_addresses };
        list.get_or_insert_default().push(address);
    }
    for subset in &mut all {
        subset.addresses.iter_mut().for_each(|list| list.sort_by(|a, b| a.ip.cmp(&b.ip)));
        subset.not_ready_addresses.iter_mut().for_each(|list| list.sort_by(|a, b| a.ip.cmp(&b.ip)));
    }
    all
}

fn endpoint_ports(spec: &ServiceSpec, pod: &PodSummary) -> Vec<EndpointPort> {
    let all = ports(spec, pod).into_iter().map(|(port, number)| EndpointPort {
        name: port.name.clone().filter(|name| !name.is_empty()),
        port: number,
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    all.collect()
}

/// Truncates the addresses to the maximum, ready ones last. Returns whether any were removed (`truncateEndpoints`).
fn truncate(subsets: &mut Vec<EndpointSubset>) -> bool {
    let mut remaining = MAX_ENDPOINTS;
    let mut cut = |list: &mut Option<Vec<EndpointAddress>>| {
        let Some(addresses) = list else { return false };
        let before = addresses.len();
        addresses.truncate(remaining);
        remaining -= addresses.len();
        let is_cut = addresses.len() < before;
        *list = list.take().filter(|addresses| !addresses.is_empty());
        is_cut
    };
    let mut is_cut = false;
    for subset in subsets.iter_mut() {
        is_cut |= cut(&mut subset.addresses);
    }
    for subset in subsets.iter_mut() {
        is_cut |= cut(&mut subset.not_ready_addresses);
    }
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    is_cut
}
