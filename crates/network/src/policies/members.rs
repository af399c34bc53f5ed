//! The Pods that policies speak of: pure.

use super::gate::Holders;
use crate::services::traffic::protocol;
use api::address::ipv4;
use api::pod::{is_sidecar, is_terminal};
use api::selector::Selector;
use k8s_openapi::api::core::v1::{Container, Namespace, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

pub(super) type Labels = BTreeMap<String, String>;

/// A Pod with an address of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) ip: Ipv4Addr,
    pub(super) namespace: &'a str,
    labels: Option<&'a Labels>,
    spec: &'a PodSpec,
}

impl<'a> Member<'a> {
    /// None of those that have no address, have ended, or are the node as far as the network is concerned.
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

    /// The numbers that it has for a port's name, as Services find them (`FindPort`).
    pub(super) fn ports(&self, name: &str, of: &'static str) -> impl Iterator<Item = u16> {
        let sidecars = self.spec.init_containers.iter().flatten().filter(|c| is_sidecar(c));
        let ports = self.spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
        let named =
            ports.filter(move |p| p.name.as_deref() == Some(name) && protocol(p.protocol.as_deref()) == Some(of));
        named.filter_map(|p| u16::try_from(p.container_port).ok())
    }
}

/// Whether labels are selected; no selector is an empty one.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else { return true };
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    // An operator that there is not selects nothing.
    Selector::from_object(selector).is_ok_and(|selector| selector.matches(label))
}

/// All of them, by their addresses. The kubelet's report of an address wins over every status. While a Pod ends, its
/// address may be another's already: the newest has it.
pub(super) fn members<'a>(pods: &'a [Arc<Pod>], holders: &'a Holders) -> BTreeMap<Ipv4Addr, Member<'a>> {
    let reported: BTreeMap<&str, Ipv4Addr> = holders.iter().map(|(ip, holder)| (holder.uid(), *ip)).collect();
    let is_reported = |pod: &Pod| pod.metadata.uid.as_deref().is_some_and(|uid| reported.contains_key(uid));
    let mut oldest_first: Vec<&Pod> = pods.iter().map(AsRef::as_ref).filter(|pod| !is_reported(pod)).collect();
    oldest_first.sort_by_key(|pod| {
        let ObjectMeta { deletion_timestamp, creation_timestamp, uid, .. } = &pod.metadata;
        (deletion_timestamp.is_none(), creation_timestamp, uid)
    });
    let mut members: BTreeMap<_, _> =
        oldest_first.into_iter().filter_map(Member::of).map(|member| (member.ip, member)).collect();
    let newest: BTreeMap<&str, &Pod> =
        pods.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, &**pod))).collect();
    for (ip, holder) in holders {
        members.remove(ip);
        let pod = newest.get(holder.uid()).copied().unwrap_or(&holder.pod);
        members.extend(Member::at(*ip, pod).map(|member| (*ip, member)));
    }
    members
}

/// Leaves of a Pod what is looked at here.
pub(super) fn trim(pod: &mut Pod) {
    trim_metadata(&mut pod.metadata);
    let bare = |containers: Vec<Container>| -> Vec<Container> {
        let with_ports = containers.into_iter().filter(|c| c.ports.is_some());
        with_ports
            .map(|c| Container { ports: c.ports, restart_policy: c.restart_policy, ..Container::default() })
            .collect()
    };
    pod.spec = pod.spec.take().map(|spec| PodSpec {
        host_network: spec.host_network,
        containers: bare(spec.containers),
        init_containers: spec.init_containers.map(bare),
        ..PodSpec::default()
    });
    pod.status = pod.status.take().map(|status| PodStatus {
        phase: status.phase,
        pod_ip: status.pod_ip,
        ..PodStatus::default()
    });
}

pub(super) fn trim_namespace(namespace: &mut Namespace) {
    trim_metadata(&mut namespace.metadata);
    (namespace.spec, namespace.status) = (None, None);
}

fn trim_metadata(metadata: &mut ObjectMeta) {
    (metadata.annotations, metadata.owner_references, metadata.finalizers) = (None, None, None);
}
