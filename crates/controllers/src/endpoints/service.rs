//! Services and the Pods that they select: selection, ports and addresses.

use crate::pod_summary::PodSummary;
use k8s_openapi::{
    api::core::v1::{ObjectReference, Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

/// Label of endpoints of a headless Service.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";

pub(super) fn is_headless(spec: &ServiceSpec) -> bool {
    matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"))
}

/// Returns whether the Service has a selector, so that its endpoints are managed.
pub(super) fn has_selector(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() != Some("ExternalName") && spec.selector.as_ref().is_some_and(|s| !s.is_empty())
}

/// Returns whether the Service selects the Pod.
pub(super) fn selects(spec: &ServiceSpec, pod: &PodSummary) -> bool {
    let mut selector = spec.selector.iter().flatten();
    has_selector(spec) && selector.all(|(name, value)| pod.labels.get(name) == Some(value))
}

/// Returns whether a Pod can be an endpoint (`ShouldPodBeInEndpoints`).
pub(super) fn should_pod_be_in_endpoints(pod: &PodSummary, with_terminating: bool) -> bool {
    !pod.is_terminal() && !pod.network.ips.is_empty() && (with_terminating || !pod.terminating)
}

pub(super) fn is_of_family(ip: &str, family: &str) -> bool {
    ip.contains(':') == (family == "IPv6")
}

/// Returns the address families of the Service.
pub(super) fn families(spec: &ServiceSpec) -> Vec<String> {
    let all = spec.ip_families.clone().unwrap_or_default();
    if all.is_empty() { vec!["IPv4".to_owned()] } else { all }
}

/// Returns the Service's ports that the Pod has, with their target port numbers (`FindPort`).
pub(super) fn ports<'a>(spec: &'a ServiceSpec, pod: &PodSummary) -> Vec<(&'a ServicePort, i32)> {
    let number = |port: &ServicePort| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        match &port.target_port {
            Some(IntOrString::Int(number)) => Some(*number),
            Some(IntOrString::String(name)) => {
                let mut all = pod.network.ports.iter();
                all.find(|(known, its, _)| known == name && its == protocol).map(|(_, _, number)| *number)
            }
            None => Some(port.port),
        }
    };
    spec.ports.iter().flatten().filter_map(|port| Some((port, number(port)?))).collect()
}

/// Returns the host name of a Pod whose subdomain is the Service (`hostname` of an endpoint).
pub(super) fn hostname(service: &Service, pod: &PodSummary) -> Option<String> {
    let subdomain = pod.network.subdomain.as_deref();
    pod.network.hostname.clone().filter(|_| subdomain.is_some() && subdomain == service.metadata.name.as_deref())
}

pub(super) fn pod_reference(pod: &PodSummary) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}
