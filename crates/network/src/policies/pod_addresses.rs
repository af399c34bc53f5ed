//! Pods by IP address, for NetworkPolicies. Does no I/O.

use super::gate::IpOwners;
use crate::services::service_ports::protocol;
use api::{
    address::ipv4,
    pod::{is_sidecar, is_terminal},
    selector::LabelRequirements,
};
use k8s_openapi::{
    api::core::v1::{Container, Namespace, Pod, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

pub(super) type Labels = BTreeMap<String, String>;

/// Pod with its own IP address.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicyPod<'a> {
    pub(super) ip: Ipv4Addr,
    pub(super) namespace: &'a str,
    labels: Option<&'a Labels>,
    spec: &'a PodSpec,
}

impl<'a> PolicyPod<'a> {
    /// Returns `None` for a Pod without an address, a terminated one, or one with `hostNetwork`.
    fn of(pod: &'a Pod) -> Option<Self> {
        Self::at(ipv4(pod.status.as_ref()?.pod_ip.as_ref()?)?, pod)
    }

    fn at(ip: Ipv4Addr, pod: &'a Pod) -> Option<Self> {
        let spec = pod.spec.as_ref().filter(|spec| spec.host_network != Some(true) && !is_terminal(pod))?;
        Some(Self { ip, namespace: pod.metadata.namespace.as_deref()?, labels: pod.metadata.labels.as_ref(), spec })
    }

    pub(super) fn is_selected(&self, selector: Option<&LabelSelector>) -> bool {
        selects(selector, self.labels)
    }

    /// Returns the container ports of a name (`FindPort`).
    pub(super) fn ports(&self, name: &str, port_protocol: &'static str) -> impl Iterator<Item = u16> {
        let sidecars = self.spec.init_containers.iter().flatten().filter(|c| is_sidecar(c));
        let ports = self.spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
        let named = ports
            .filter(move |p| p.name.as_deref() == Some(name) && protocol(p.protocol.as_deref()) == Some(port_protocol));
        named.filter_map(|p| u16::try_from(p.container_port).ok())
    }
}

/// Returns whether the selector matches; `None` matches everything.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else { return true };
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    // An invalid selector matches nothing.
    LabelRequirements::from_object(selector).is_ok_and(|selector| selector.matches(label))
}

/// Returns the Pods by IP address. A report of the kubelet takes precedence over every status. The address of a
/// terminating Pod may have been reused: the newest Pod wins.
pub(super) fn pods_by_ip<'a>(pods: &'a [Arc<Pod>], owners: &'a IpOwners) -> BTreeMap<Ipv4Addr, PolicyPod<'a>> {
    let reported: BTreeMap<&str, Ipv4Addr> = owners.iter().map(|(ip, owner)| (owner.uid(), *ip)).collect();
    let is_reported = |pod: &Pod| pod.metadata.uid.as_deref().is_some_and(|uid| reported.contains_key(uid));
    let mut oldest_first: Vec<&Pod> = pods.iter().map(AsRef::as_ref).filter(|pod| !is_reported(pod)).collect();
    oldest_first.sort_by_key(|pod| {
        let ObjectMeta { deletion_timestamp, creation_timestamp, uid, .. } = &pod.metadata;
        (deletion_timestamp.is_none(), creation_timestamp, uid)
    });
    let mut pods_by_ip: BTreeMap<_, _> =
        oldest_first.into_iter().filter_map(PolicyPod::of).map(|pod| (pod.ip, pod)).collect();
    let newest: BTreeMap<&str, &Pod> =
        pods.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, &**pod))).collect();
    for (ip, owner) in owners {
        pods_by_ip.remove(ip);
        let pod = newest.get(owner.uid()).copied().unwrap_or(&owner.pod);
        pods_by_ip.extend(PolicyPod::at(*ip, pod).map(|pod| (*ip, pod)));
    }
    pods_by_ip
}

/// Removes the fields of a Pod that policies do not use.
pub(super) fn trim(mut pod: Pod) -> Pod {
    trim_metadata(&mut pod.metadata);
    let trim_containers = |containers: Vec<Container>| -> Vec<Container> {
        let with_ports = containers.into_iter().filter(|c| c.ports.is_some());
        with_ports
            .map(|c| Container { ports: c.ports, restart_policy: c.restart_policy, ..Container::default() })
            .collect()
    };
    pod.spec = pod.spec.take().map(|spec| PodSpec {
        host_network: spec.host_network,
        containers: trim_containers(spec.containers),
        init_containers: spec.init_containers.map(trim_containers),
        ..PodSpec::default()
    });
    pod.status = pod.status.take().map(|status| PodStatus {
        phase: status.phase,
        pod_ip: status.pod_ip,
        ..PodStatus::default()
    });
    pod
}

pub(super) fn trim_namespace(namespace: Namespace) -> Namespace {
    let mut metadata = namespace.metadata;
    trim_metadata(&mut metadata);
    Namespace { metadata, spec: None, status: None }
}

fn trim_metadata(metadata: &mut ObjectMeta) {
    (metadata.annotations, metadata.owner_references, metadata.finalizers) = (None, None, None);
    // Part of the comparison that suppresses events.
    (metadata.resource_version, metadata.generation) = (None, None);
}
