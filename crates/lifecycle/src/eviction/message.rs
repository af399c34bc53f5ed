//! Eviction messages, equal to upstream's (`evictionMessage`).

use super::{MetThreshold, PodUsage, Resource};
use api::quantity::{Amount, canonical};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// Returns the message and annotations of an eviction under resource pressure.
pub(super) fn eviction_message(
    met_threshold: &MetThreshold,
    pod: &Pod,
    pod_usage: Option<&PodUsage>,
) -> (String, BTreeMap<String, String>) {
    let (resource, name) = (met_threshold.threshold.signal.resource(), met_threshold.resource());
    let mut message = format!("The node was low on resource: {name}. ");
    if let Some((quantity, available)) = &met_threshold.quantities {
        message += &format!("Threshold quantity: {quantity}, available: {available}. ");
    }
    let Some(pod_usage) = pod_usage else {
        return (message, BTreeMap::new());
    };
    let (mut offending, mut usages) = (Vec::new(), Vec::new());
    message += &pod_excess(resource, pod, pod_usage).unwrap_or_default();
    for container in &pod_usage.containers {
        let usage = match resource {
            Resource::Memory => container.memory,
            Resource::EphemeralStorage => {
                container.rootfs.zip(container.logs).map(|(rootfs, logs)| rootfs.plus(logs).bytes)
            }
            Resource::Inodes | Resource::Pids => None,
        };
        let Some((usage, spec)) = usage.map(Amount::units).zip(spec_of(pod, &container.name)) else {
            continue;
        };
        let requests = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
        let (request, request_text) = amount(requests.and_then(|r| r.get(name)).map(|q| q.0.as_str()));
        if usage > request {
            let usage = usage.to_binary_quantity().0;
            let container_name = &container.name;
            message += &format!(
                "Container {container_name} was using {usage}, request is {request_text}, has larger consumption of {name}. "
            );
            offending.push(container_name.as_str());
            usages.push(usage);
        }
    }
    let annotations = [
        ("offending_containers", offending.join(",")),
        ("offending_containers_usage", usages.join(",")),
        ("starved_resource", name.to_owned()),
    ];
    (message, annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Describes the usage of a Pod with Pod-level resources (KEP-2837).
fn pod_excess(resource: Resource, pod: &Pod, pod_usage: &PodUsage) -> Option<String> {
    let requests = pod.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    let request = requests.get("memory").filter(|_| resource == Resource::Memory)?;
    let usage = Amount::units(pod_usage.memory?).to_binary_quantity().0;
    let (name, (_, request_text)) = (pod.metadata.name.as_deref().unwrap_or_default(), amount(Some(&request.0)));
    Some(format!("Pod {name} was using {usage}, request is {request_text}, has larger consumption of memory. "))
}

/// Parses an amount and its canonical form; `None` is `0`.
pub(super) fn amount(text: Option<&str>) -> (Amount, String) {
    let known = text.and_then(|t| Some((Amount::parse(t).ok()?, canonical(t).ok()?)));
    known.unwrap_or_else(|| (Amount::ZERO, "0".to_owned()))
}

fn spec_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let all = pod.spec.as_ref().into_iter().flat_map(api::pod::containers);
    all.map(|(_, c)| c).find(|c| c.name == name)
}
