//! Pod summary: the part of a Pod that the controllers and the scheduler use, which share one copy of it.

mod interner;
mod metric_inputs;
mod scheduling;

pub use interner::Interned;
pub use metric_inputs::{MissingRequestError, PodMetricInputs, Readiness};

use crate::{Cached, View};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, ObjectReference, Pod, PodSpec, PodStatus, Toleration},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
pub use scheduling::SchedulingInputs;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// Annotation: the cost of deleting the Pod compared to others of its ReplicaSet.
const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Finalizer that keeps a Job's Pod until the Job has counted it.
pub const JOB_TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label: the completion index of an indexed Job's Pod.
pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation: the number of earlier failures of the Pod's index.
pub const JOB_INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation: the number of earlier failures of the index that a failure policy ignored.
pub const JOB_INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Summary of a Pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodSummary {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Labels.
    pub labels: Interned<BTreeMap<String, String>>,
    /// `metadata.resourceVersion` when the Pod last changed in another field of the summary.
    pub resource_version: NotCompared<Box<str>>,
    /// The managing controller's owner reference.
    pub controller: Option<OwnerReference>,
    /// Neither terminal nor terminating.
    pub active: bool,
    /// Whether the Pod has a deletion timestamp.
    pub terminating: bool,
    /// The node that the Pod is bound to.
    pub node: Option<String>,
    /// The node that the node affinity of an unscheduled DaemonSet Pod names.
    pub target_node: Option<String>,
    /// Phase.
    pub phase: String,
    /// The transition time of a true `Ready` condition.
    pub ready: Option<Timestamp>,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// The highest restart count of a container.
    pub restarts: i32,
    /// The annotation [`POD_DELETION_COST`], or 0.
    pub deletion_cost: i64,
    /// `spec.priority`, or 0.
    pub priority: i32,
    /// The transition time of a true `DisruptionTarget` condition. Excludes `TerminationByKubelet`, which the kubelet
    /// follows up itself.
    pub disruption_target_since: Option<Timestamp>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Whether the kubelet evicted the Pod.
    pub evicted: bool,
    /// Addresses and named ports.
    pub network: PodNetwork,
    /// Names of the volumes that are claims, with the names of the claims.
    pub claims: Vec<(String, String)>,
    /// Names of the claims of ephemeral volumes.
    pub ephemeral_claims: Vec<String>,
    /// Whether the kubelet has confirmed the deletion, or the deletion was forced: only finalizers keep the object.
    pub is_shut_down: bool,
    /// Input of the autoscaler's calculations.
    pub metric_inputs: Box<PodMetricInputs>,
    /// Summary for the Job controller. `None` for Pods of other owners.
    pub job: Option<Box<JobPodSummary>>,
    /// Input of the scheduler. Empty for a terminal Pod.
    pub scheduling: SchedulingInputs,
}

/// A value that does not count in comparisons.
#[derive(Debug, Clone, Default)]
pub struct NotCompared<T>(pub T);

impl<T> PartialEq for NotCompared<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Addresses and named ports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodNetwork {
    /// Addresses.
    pub ips: Vec<String>,
    /// `spec.hostname`, if not empty.
    pub hostname: Option<String>,
    /// `spec.subdomain`, if not empty.
    pub subdomain: Option<String>,
    /// Named container ports: name, protocol, number.
    pub ports: Vec<(String, String, i32)>,
}

/// The part of a Job's Pod that the Job controller uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobPodSummary {
    /// Whether the Pod has the finalizer [`JOB_TRACKING_FINALIZER`].
    pub tracked: bool,
    /// The completion index.
    pub index: Option<i32>,
    /// The number of earlier failures of the index.
    pub failures: i32,
    /// The number of earlier failures of the index that a failure policy ignored.
    pub ignored: i32,
    /// Names and exit codes of terminated containers, app containers first.
    pub exits: Vec<(String, i32)>,
    /// Types and statuses of the conditions.
    pub conditions: Vec<(String, String)>,
    /// The finish time of the last container, or else the transition time of `Ready`, or else the deletion time.
    pub finished: Option<Timestamp>,
    /// Sum of the restart counts of all containers.
    pub restarts: i32,
}

impl Cached for PodSummary {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl View for PodSummary {
    type Kind = Pod;

    fn of(pod: Pod) -> Self {
        Self::from_pod(pod)
    }
}

impl PodSummary {
    /// Returns the summary of a Pod.
    #[must_use]
    pub fn from_pod(pod: Pod) -> Self {
        let (meta, spec, status) = (pod.metadata, pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
        let phase = status.phase.clone().unwrap_or_default();
        let terminating = meta.deletion_timestamp.is_some();
        let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready" && c.status == "True");
        let disrupted =
            status.conditions.iter().flatten().find(|c| c.type_ == "DisruptionTarget" && c.status == "True");
        let disrupted = disrupted.filter(|c| c.reason.as_deref() != Some("TerminationByKubelet"));
        let disrupted = disrupted.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0);
        let restarts = status.container_statuses.iter().flatten().map(|c| c.restart_count).max();
        let controller = controller_of(meta.owner_references.as_deref().unwrap_or_default()).cloned();
        let node = spec.node_name.clone().filter(|n| !n.is_empty());
        let is_terminal = matches!(phase.as_str(), "Succeeded" | "Failed");
        let scheduling = if is_terminal { SchedulingInputs::default() } else { SchedulingInputs::of(&spec, &status) };
        Self {
            target_node: if node.is_none() { target_node_name(&spec) } else { None },
            active: !terminating && !is_terminal,
            terminating,
            node,
            ready: ready.map(|c| c.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0)),
            created: meta.creation_timestamp.as_ref().map(|t| t.0),
            restarts: restarts.unwrap_or(0),
            deletion_cost: number(&meta, POD_DELETION_COST).unwrap_or(0),
            disruption_target_since: disrupted,
            priority: spec.priority.unwrap_or(0),
            evicted: status.reason.as_deref() == Some("Evicted"),
            network: PodNetwork::of(&spec, &status),
            claims: claims(&spec),
            ephemeral_claims: ephemeral_claims(&spec, meta.name.as_deref().unwrap_or_default()),
            metric_inputs: Box::new(PodMetricInputs::of(&spec, &status)),
            is_shut_down: terminating && meta.deletion_grace_period_seconds == Some(0),
            job: JobPodSummary::of(&meta, &status, controller.as_ref()).map(Box::new),
            tolerations: spec.tolerations.unwrap_or_default(),
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            generation: meta.generation,
            labels: meta.labels.unwrap_or_default().into(),
            resource_version: NotCompared(meta.resource_version.unwrap_or_default().into()),
            controller,
            phase,
            scheduling,
        }
    }

    /// Returns the `DisruptionTarget` condition: true with a reason and message, false without.
    #[must_use]
    pub fn disruption_target(&self, reason_and_message: Option<(&str, &str)>) -> Value {
        json!({
            "type": "DisruptionTarget",
            "status": if reason_and_message.is_some() { "True" } else { "False" },
            "reason": reason_and_message.map(|(reason, _)| reason),
            "message": reason_and_message.map(|(_, message)| message),
            "lastTransitionTime": Time(Timestamp::now()),
            "observedGeneration": self.generation,
        })
    }

    /// Returns whether the Pod has been ready for `after` seconds (`IsPodAvailable`).
    #[must_use]
    pub fn is_available(&self, after: i32, now: Timestamp) -> bool {
        self.ready.is_some_and(|since| now.duration_since(since).as_secs() >= i64::from(after))
    }

    /// Returns whether the phase is terminal (`IsPodTerminal`).
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Returns the reference by which Events name the Pod.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }

    /// Returns the time until the Pod is available. `None` if it is available or not ready.
    #[must_use]
    pub fn time_until_available(&self, after: i32, now: Timestamp) -> Option<Duration> {
        let due = self.ready?.checked_add(SignedDuration::from_secs(i64::from(after))).ok()?;
        let left = Duration::try_from(due.duration_since(now)).ok()?;
        Some(left.max(Duration::from_millis(10))).filter(|_| !self.is_available(after, now))
    }

    /// Returns whether both are the same Pod, by UID.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid
    }
}

impl PodNetwork {
    fn of(spec: &PodSpec, status: &PodStatus) -> Self {
        let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.is_some());
        let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
        let protocol = |p: &Option<String>| p.clone().unwrap_or_else(|| "TCP".to_owned());
        Self {
            ips: status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect(),
            hostname: spec.hostname.clone().filter(|h| !h.is_empty()),
            subdomain: spec.subdomain.clone().filter(|s| !s.is_empty()),
            ports: ports
                .filter_map(|p| {
                    Some((p.name.clone().filter(|n| !n.is_empty())?, protocol(&p.protocol), p.container_port))
                })
                .collect(),
        }
    }
}

impl JobPodSummary {
    fn of(meta: &ObjectMeta, status: &PodStatus, controller: Option<&OwnerReference>) -> Option<Self> {
        let tracked = meta.finalizers.iter().flatten().any(|f| f == JOB_TRACKING_FINALIZER);
        if !tracked && controller.is_none_or(|owner| owner.kind != "Job") {
            return None;
        }
        let all = || status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
        let ended = |c: &ContainerStatus| c.state.as_ref().and_then(|s| s.terminated.clone());
        let last = all().filter_map(|c| ended(c)?.finished_at).map(|t| t.0).max();
        let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready");
        let unready = ready.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0);
        Some(Self {
            tracked,
            index: number(meta, JOB_COMPLETION_INDEX).filter(|n| *n >= 0),
            failures: number(meta, JOB_INDEX_FAILURE_COUNT).unwrap_or(0),
            ignored: number(meta, JOB_INDEX_IGNORED_FAILURE_COUNT).unwrap_or(0),
            exits: all().filter_map(|c| Some((c.name.clone(), ended(c)?.exit_code))).collect(),
            conditions: status.conditions.iter().flatten().map(|c| (c.type_.clone(), c.status.clone())).collect(),
            finished: last.or(unready).or_else(|| meta.deletion_timestamp.as_ref().map(|t| t.0)),
            restarts: all().fold(0, |sum, c| i32::saturating_add(sum, c.restart_count)),
        })
    }
}

/// Returns the node that the Pod's node affinity names (`GetTargetNodeName`).
#[must_use]
pub fn target_node_name(pod: &PodSpec) -> Option<String> {
    let affinity = pod.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut named = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    named.find_map(|field| field.values.as_ref()?.first().cloned())
}

fn claims(spec: &PodSpec) -> Vec<(String, String)> {
    let volumes = spec.volumes.iter().flatten();
    volumes.filter_map(|v| Some((v.name.clone(), v.persistent_volume_claim.as_ref()?.claim_name.clone()))).collect()
}

fn ephemeral_claims(spec: &PodSpec, pod: &str) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten().filter(|volume| volume.ephemeral.is_some());
    volumes.filter_map(|volume| api::persistent_volume_claim::claim_name(pod, volume)).collect()
}

fn number<N: std::str::FromStr>(meta: &ObjectMeta, annotation: &str) -> Option<N> {
    meta.annotations.as_ref()?.get(annotation)?.parse().ok()
}

/// Returns the reference of the managing controller (`GetControllerOf`).
#[must_use]
pub fn controller_of(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|o| o.controller == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn member(pod: Value) -> PodSummary {
        PodSummary::from_pod(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn pod_summary_has_addresses_and_named_ports() {
        let pod = member(json!({
            "metadata": {"name": "p", "namespace": "x"},
            "spec": {"hostname": "h", "subdomain": "s", "containers": [
                {"name": "a", "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]},
                {"name": "b", "ports": [{"containerPort": 53, "name": "dns", "protocol": "UDP"}]}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}]},
        }));
        assert_eq!(pod.network.ips, ["10.0.0.1"]);
        assert_eq!(pod.network.ports, [("http".into(), "TCP".into(), 80), ("dns".into(), "UDP".into(), 53)]);
        assert_eq!((pod.network.hostname.as_deref(), pod.network.subdomain.as_deref()), (Some("h"), Some("s")));
        assert_eq!(pod.job, None);
    }

    #[test]
    fn job_pod_summary_has_exit_codes_and_finish_time() {
        let pod = member(json!({
            "metadata": {"name": "p", "finalizers": [JOB_TRACKING_FINALIZER], "annotations": {JOB_COMPLETION_INDEX: "3", JOB_INDEX_FAILURE_COUNT: "2"}},
            "status": {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}],
                "containerStatuses": [{"name": "c", "restartCount": 4, "ready": false, "image": "", "imageID": "",
                    "state": {"terminated": {"exitCode": 7, "finishedAt": "2026-01-01T00:00:05Z"}}}]},
        }));
        let job = pod.job.unwrap();
        assert_eq!((job.tracked, job.index, job.failures, job.restarts), (true, Some(3), 2, 4));
        assert_eq!(job.exits, [("c".to_owned(), 7)]);
        assert_eq!(job.finished, Some("2026-01-01T00:00:05Z".parse().unwrap()));
        assert_eq!(job.conditions, [("DisruptionTarget".to_owned(), "True".to_owned())]);
    }
}
