//! The part of a Pod that only the scheduler uses.
//!
//! It is JSON, because the types of `k8s-openapi` have a field for everything: a container takes 2 KB and a volume 3 KB
//! of memory, whatever they contain. Pods of one template have the same text, which they share.

use super::{
    PodSummary,
    interner::{Interned, intern},
};
use api::pod::{containers, is_sidecar};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerPort, ContainerStatus, EphemeralVolumeSource, PersistentVolumeClaimSpec,
        PersistentVolumeClaimTemplate, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements, Volume,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::Serialize;

/// The part of a Pod that only the scheduler uses, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchedulingInputs {
    /// A `PodSpec`, without what is in the summary.
    spec: Interned<[u8]>,
    /// A `PodStatus`. It is separate, because it has times. Empty for a status without anything of interest.
    status: Interned<[u8]>,
}

impl SchedulingInputs {
    pub(super) fn of(spec: &PodSpec, status: &PodStatus) -> Self {
        let status = trimmed_status(spec, status).map(|status| encode(&status)).unwrap_or_default();
        Self { spec: encode(&trimmed_spec(spec)), status }
    }
}

fn encode(part: &impl Serialize) -> Interned<[u8]> {
    // The types have string keys and no custom serializers, so this cannot fail.
    serde_json::to_vec(part).map(|text| intern(text.into())).unwrap_or_default()
}

impl PodSummary {
    /// Returns the Pod with the fields that scheduling depends on. The others are not set: one that the scheduler
    /// begins to read must be added to `trimmed_spec` or `trimmed_status`.
    #[must_use]
    pub fn to_scheduling_pod(&self) -> Pod {
        let mut spec: PodSpec = serde_json::from_slice(&self.scheduling.spec).unwrap_or_default();
        spec.node_name.clone_from(&self.node);
        spec.tolerations = Some(self.tolerations.clone()).filter(|tolerations| !tolerations.is_empty());
        let mut status: PodStatus = serde_json::from_slice(&self.scheduling.status).unwrap_or_default();
        status.phase = Some(self.phase.clone()).filter(|phase| !phase.is_empty());
        status.start_time = self.metric_inputs.started.map(Time);
        let metadata = ObjectMeta {
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            resource_version: Some(self.resource_version.0.to_string()),
            generation: self.generation,
            labels: Some((*self.labels).clone()).filter(|labels| !labels.is_empty()),
            // Only whether it is set matters.
            deletion_timestamp: self.terminating.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        };
        Pod { metadata, spec: Some(spec), status: Some(status) }
    }

    /// Returns whether the Pod's spec or labels differ in what scheduling depends on.
    #[must_use]
    pub fn is_scheduled_alike(&self, other: &Self) -> bool {
        self.scheduling.spec == other.scheduling.spec
            && self.labels == other.labels
            && self.tolerations == other.tolerations
    }
}

fn trimmed_spec(spec: &PodSpec) -> PodSpec {
    PodSpec {
        affinity: spec.affinity.clone(),
        containers: spec.containers.iter().map(trimmed_container).collect(),
        host_network: spec.host_network,
        init_containers: spec.init_containers.as_ref().map(|all| all.iter().map(trimmed_container).collect()),
        node_selector: spec.node_selector.clone(),
        overhead: spec.overhead.clone(),
        preemption_policy: spec.preemption_policy.clone(),
        priority: spec.priority,
        resource_claims: spec.resource_claims.clone(),
        resources: spec.resources.clone(),
        scheduler_name: spec.scheduler_name.clone(),
        scheduling_gates: spec.scheduling_gates.clone(),
        topology_spread_constraints: spec.topology_spread_constraints.clone(),
        volumes: spec.volumes.as_ref().map(|all| all.iter().filter_map(trimmed_volume).collect()),
        ..PodSpec::default()
    }
}

fn trimmed_container(container: &Container) -> Container {
    let host_ports = container.ports.iter().flatten().filter(|port| port.host_port.is_some());
    let ports: Vec<ContainerPort> = host_ports.cloned().collect();
    Container {
        name: container.name.clone(),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
        resources: container.resources.as_ref().map(|resources| ResourceRequirements {
            claims: None,
            limits: None,
            requests: resources.requests.clone(),
        }),
        restart_policy: container.restart_policy.clone().filter(|_| is_sidecar(container)),
        ..Container::default()
    }
}

/// Returns a volume that is a claim.
fn trimmed_volume(volume: &Volume) -> Option<Volume> {
    let ephemeral = volume.ephemeral.as_ref().map(|_| EphemeralVolumeSource {
        volume_claim_template: Some(PersistentVolumeClaimTemplate {
            metadata: None,
            spec: PersistentVolumeClaimSpec::default(),
        }),
    });
    let claim = volume.persistent_volume_claim.clone();
    (claim.is_some() || ephemeral.is_some()).then(|| Volume {
        name: volume.name.clone(),
        persistent_volume_claim: claim,
        ephemeral,
        ..Volume::default()
    })
}

/// Returns the conditions, the nominated node and the resources of resized containers, `None` if there are none.
fn trimmed_status(spec: &PodSpec, status: &PodStatus) -> Option<PodStatus> {
    let is_bound = spec.node_name.as_ref().is_some_and(|name| !name.is_empty());
    let is_read = |c: &&PodCondition| match c.type_.as_str() {
        "PodScheduled" => !is_bound,
        // A resize counts the allocated requests, and a preemption waits for its victims.
        "PodResizePending" | "DisruptionTarget" => true,
        _ => false,
    };
    let conditions: Vec<PodCondition> = status.conditions.iter().flatten().filter(is_read).cloned().collect();
    let resized = |all: Option<&[ContainerStatus]>| {
        let resized: Vec<_> = all?.iter().filter_map(|status| resized_container(spec, status)).collect();
        Some(resized).filter(|resized| !resized.is_empty())
    };
    let trimmed = PodStatus {
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
        nominated_node_name: status.nominated_node_name.clone(),
        container_statuses: resized(status.container_statuses.as_deref()),
        init_container_statuses: resized(status.init_container_statuses.as_deref()),
        ..PodStatus::default()
    };
    (trimmed != PodStatus::default()).then_some(trimmed)
}

/// Returns the resources of a container that has, or was allocated, others than it requests.
fn resized_container(spec: &PodSpec, status: &ContainerStatus) -> Option<ContainerStatus> {
    let actual = status.resources.as_ref()?;
    let container = containers(spec).map(|(_, container)| container).find(|container| container.name == status.name)?;
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let is_allocated = status.allocated_resources.is_none() || status.allocated_resources.as_ref() == requests;
    if actual.requests.as_ref() == requests && is_allocated {
        return None;
    }
    Some(ContainerStatus {
        name: status.name.clone(),
        allocated_resources: status.allocated_resources.clone(),
        resources: Some(ResourceRequirements { claims: None, limits: None, requests: actual.requests.clone() }),
        ..ContainerStatus::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::resources::pod_requests_during_resize;
    use serde_json::{Value, json};

    fn pod(changes: Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "x", "uid": "u", "resourceVersion": "7", "generation": 2,
                "labels": {"a": "b"}},
            "spec": {"schedulerName": "default-scheduler", "priority": 5, "nodeSelector": {"zone": "a"},
                "schedulingGates": [{"name": "g"}], "overhead": {"cpu": "5m"},
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]}},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
                "initContainers": [{"name": "side", "restartPolicy": "Always"}],
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}},
                    "ports": [{"containerPort": 80, "hostPort": 80}]}]},
            "status": {"phase": "Pending", "nominatedNodeName": "n", "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
        });
        json_patch::merge(&mut pod, &changes);
        pod
    }

    fn summary(pod: &Value) -> PodSummary {
        PodSummary::from_pod(serde_json::from_value(pod.clone()).unwrap())
    }

    #[test]
    fn scheduling_pod_has_all_that_the_scheduler_reads() {
        let pod = pod(json!({}));
        let expected: Pod = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(summary(&pod).to_scheduling_pod(), expected);
    }

    #[test]
    fn other_fields_are_not_kept_and_texts_are_shared() {
        let with_image = |name: &str, image: &str| {
            summary(&pod(json!({"metadata": {"name": name}, "spec": {"volumes": [{"name": name, "emptyDir": {}}],
                "initContainers": null,
                "containers": [{"name": "c", "image": image, "env": [{"name": "E", "value": name}]}]}})))
        };
        let (one, two) = (with_image("one", "i:1"), with_image("two", "i:2"));
        assert!(one.is_scheduled_alike(&two));
        assert!(std::ptr::eq(&raw const *one.scheduling.spec, &raw const *two.scheduling.spec));
        let text = String::from_utf8(one.scheduling.spec.to_vec()).unwrap();
        assert!(!text.contains("image") && !text.contains("emptyDir"), "{text}");
        let ended = summary(&pod(json!({"status": {"phase": "Succeeded"}})));
        assert_eq!(ended.scheduling, SchedulingInputs::default());
    }

    #[test]
    fn requests_during_a_resize_are_kept() {
        let resized = |desired: &str, allocated: &str, actual: &str, reason: &str| {
            pod(
                json!({"spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": desired}}}]},
                "status": {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                    "containerStatuses": [{"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
                        "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}}]}}),
            )
        };
        for (desired, allocated, actual, reason) in [
            ("300m", "200m", "100m", "Deferred"),
            ("100m", "200m", "300m", "Deferred"),
            ("900m", "200m", "100m", "Infeasible"),
            ("100m", "100m", "100m", "Infeasible"),
            ("100m", "100m", "100m", "Deferred"),
        ] {
            let pod = resized(desired, allocated, actual, reason);
            let whole: Pod = serde_json::from_value(pod.clone()).unwrap();
            let kept = pod_requests_during_resize(&summary(&pod).to_scheduling_pod());
            assert_eq!(kept, pod_requests_during_resize(&whole), "{desired} {allocated} {actual} {reason}");
        }
    }
}
