//! In-place resize (KEP-1287): desired, allocated and actual resources of a Pod.
//!
//! The Pod's object holds the allocated resources, so that all other code uses them. Only this module knows the desired
//! resources.

mod events;
mod feasibility;

pub use feasibility::{ResizeDecision, decide};

use crate::{
    Action, EventKind, NodePolicy, Pod,
    container::{Container, InstanceState, elapsed},
    container_kill::KillCause,
    observe::{kills, record},
    plan::Plan,
    pod::FailedAttempt,
    time::after,
};
use api::{
    pod::{ContainerKind, containers},
    resources::{self, Amounts, ResourceField},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container as Spec, Pod as ApiPod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Resources by container name.
pub type Allocation = BTreeMap<String, ResourceRequirements>;

/// Delay before a deferred resize is first retried, unless an event retries it earlier.
const FIRST_RETRY: Duration = Duration::from_secs(30);
/// Delay before each later retry.
const RETRY: Duration = Duration::from_secs(180);

/// State of a resize.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Resize {
    /// Desired resources of the API object, if they differ from the allocated ones.
    #[serde(rename = "asked")]
    desired: Option<Allocation>,
    /// Deferred or infeasible resize.
    pub(crate) pending: Option<Pending>,
    /// Allocated resize that is not actuated yet.
    pub(crate) progress: Option<Progress>,
    /// Resources of the Pod's cgroup, if they differ from the allocated ones.
    cgroup: Option<Allocation>,
}

/// Resize that is not allocated (`PodResizePending`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) reason: PendingReason,
    pub(crate) message: String,
    /// `metadata.generation` of the resize request.
    pub(crate) generation: i64,
    tries: u32,
    retry_at: Timestamp,
}

/// Reason of a pending resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PendingReason {
    /// It does not fit on the node now.
    Deferred,
    /// It can never fit on the node.
    Infeasible,
}

impl PendingReason {
    /// Returns the reason in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// Allocated resize that is not actuated yet (`PodResizeInProgress`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// `metadata.generation` of the resize request.
    pub(crate) generation: i64,
    pub(crate) error: Option<FailedAttempt>,
    tries: u32,
}

/// Returns whether containers of this kind can be resized: all but init containers.
pub(crate) fn is_resizable(kind: ContainerKind) -> bool {
    kind != ContainerKind::Init
}

fn allocation(spec: &PodSpec) -> Allocation {
    let resizable = containers(spec).filter(|(kind, _)| is_resizable(*kind));
    resizable.map(|(_, c)| (c.name.clone(), c.resources.clone().unwrap_or_default())).collect()
}

/// Returns the object with these resources.
fn with_resources(object: &ApiPod, allocation: &Allocation) -> ApiPod {
    let mut object = object.clone();
    if let Some(spec) = object.spec.as_mut() {
        let sidecars = spec.init_containers.iter_mut().flatten().filter(|c| api::pod::is_sidecar(c));
        for container in sidecars.chain(&mut spec.containers) {
            if let Some(resources) = allocation.get(&container.name) {
                container.resources = Some(resources.clone());
            }
        }
    }
    object
}

impl Pod {
    /// Returns the allocated resources of its containers.
    #[must_use]
    pub fn allocation(&self) -> Allocation {
        allocation(self.spec())
    }

    /// Returns the resources of its cgroup.
    #[must_use]
    pub fn cgroup_allocation(&self) -> Allocation {
        self.resize.cgroup.clone().unwrap_or_else(|| self.allocation())
    }

    /// Returns the Pod with these resources.
    #[must_use]
    pub fn with_allocation(&self, allocation: &Allocation) -> ApiPod {
        with_resources(&self.object, allocation)
    }

    /// Returns the Pod with its desired resources.
    #[must_use]
    pub fn desired(&self) -> ApiPod {
        self.resize
            .desired
            .as_ref()
            .map_or_else(|| ApiPod::clone(&self.object), |desired| with_resources(&self.object, desired))
    }

    /// Returns whether the Pod has a deferred resize.
    #[must_use]
    pub fn has_deferred_resize(&self) -> bool {
        self.resize.pending.as_ref().is_some_and(|p| p.reason == PendingReason::Deferred)
    }

    /// Returns the Pod with the maximum of allocated and actual resources of each container, and of the desired ones if
    /// they were `granted`.
    #[must_use]
    pub fn with_max_resources(&self, granted: bool) -> Arc<ApiPod> {
        let desired = self.resize.desired.as_ref().filter(|_| granted);
        if self.resize.progress.is_none() && desired.is_none() {
            return Arc::clone(&self.object);
        }
        let maximum = self.allocation().into_iter().map(|(name, mut resources)| {
            let has = actual(self.container(&name)).and_then(|r| r.requests.as_ref());
            let desired_requests = desired.and_then(|a| a.get(&name)).and_then(|r| r.requests.as_ref());
            let mut requests = resources::amounts(resources.requests.as_ref());
            [has, desired_requests]
                .into_iter()
                .for_each(|list| resources::max_resource_list(&mut requests, &resources::amounts(list)));
            resources.requests =
                Some(requests.into_iter().map(|(n, a)| (n.clone(), resources::format_amount(&n, a))).collect());
            (name, resources)
        });
        Arc::new(self.with_allocation(&maximum.collect()))
    }

    /// Returns the Pod's resource requests on the node; empty unless it is admitted and not terminal.
    #[must_use]
    pub fn requested_resources(&self) -> Amounts {
        if !self.is_admitted() || self.has_ended() || self.is_gone() {
            return Amounts::new();
        }
        self.with_max_resources(false)
            .spec
            .as_ref()
            .map(|spec| resources::pod_resources(spec, ResourceField::Requests))
            .unwrap_or_default()
    }

    /// Returns names and ids of running containers whose resources differ from the allocated ones and can be updated
    /// without a restart.
    #[must_use]
    pub fn to_update(&self) -> Vec<(String, String)> {
        let differing = containers(self.spec()).filter_map(|(_, spec)| {
            let container = self.container(&spec.name);
            let actual_resources = actual(container).filter(|_| container.is_running())?;
            (!needs_restart(spec, actual_resources))
                .then(|| (spec.name.clone(), container.current.as_ref().map(|i| i.id.clone())))
        });
        differing.filter_map(|(name, id)| Some((name, id?))).collect()
    }

    /// Returns the actual resources of a container.
    #[must_use]
    pub fn actual_resources(&self, name: &str) -> ResourceRequirements {
        let allocated = || self.container_spec(name).and_then(|(_, c)| c.resources.clone());
        actual(self.container(name)).cloned().or_else(allocated).unwrap_or_default()
    }
}

/// Returns the actual resources of a container, if they differ from the allocated ones.
fn actual(container: &Container) -> Option<&ResourceRequirements> {
    container.current.as_ref().filter(|i| !matches!(i.state, InstanceState::Exited(_)))?.resources.as_ref()
}

/// Returns whether the change requires a container restart (`resizePolicy`).
fn needs_restart(spec: &Spec, actual_resources: &ResourceRequirements) -> bool {
    let none = ResourceRequirements::default();
    let has = spec.resources.as_ref().unwrap_or(&none);
    let amount = |r: &ResourceRequirements, name: &str| {
        let get = |list: Option<&BTreeMap<String, Quantity>>| list.and_then(|l| l.get(name).cloned());
        (get(r.requests.as_ref()), get(r.limits.as_ref()))
    };
    spec.resize_policy.iter().flatten().any(|policy| {
        let name = policy.resource_name.as_str();
        policy.restart_policy == "RestartContainer" && amount(actual_resources, name) != amount(has, name)
    })
}

/// Returns the object for the node when the API object was updated: with the allocated resources once the Pod is
/// admitted.
pub(crate) fn updated(pod: &mut Pod, object: Arc<ApiPod>) -> Arc<ApiPod> {
    if !pod.is_admitted() {
        return object;
    }
    let desired = object.spec.as_ref().map(allocation).unwrap_or_default();
    let known = pod.allocation();
    let same = desired.iter().all(|(name, resources)| known.get(name).is_none_or(|k| k == resources));
    if same {
        // The resize was withdrawn.
        (pod.resize.desired, pod.resize.pending) = (None, None);
        return object;
    }
    let object = Arc::new(with_resources(&object, &known));
    if pod.resize.desired.as_ref() != Some(&desired) {
        pod.resize.desired = Some(desired);
    }
    object
}

/// Restores the allocated resources from the status in the API.
pub(crate) fn restore(pod: &mut Pod, allocated: &Allocation) {
    let desired = pod.allocation();
    let known: Allocation = allocated
        .iter()
        .filter(|(name, r)| desired.get(*name).is_some_and(|a| a != *r))
        .map(|(n, r)| (n.clone(), r.clone()))
        .collect();
    if !known.is_empty() {
        *pod.object = Arc::new(with_resources(&pod.object, &known));
        pod.resize.desired = Some(desired);
    }
}

/// Plans the resize of a running Pod.
pub(crate) fn plan(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let generation = pod.object.metadata.generation.unwrap_or(0);
    if pod.resize.desired.is_some() {
        match &pod.resize.pending {
            Some(p) if p.generation == generation && p.reason == PendingReason::Infeasible => {}
            Some(p) if p.generation == generation && p.retry_at > now => plan.wake_at(p.retry_at),
            other => {
                let tries = other.as_ref().map_or(0, |p| p.tries);
                plan.actions.push(Action::DecideResize { generation, tries });
            }
        }
    }
    let Some(progress) = pod.resize.progress.as_ref() else { return };
    if pod.resize.cgroup.is_none() && pod.to_update().is_empty() {
        return;
    }
    // Containers that restart stop first (upstream's `SyncPod`), so that the cgroup is not shrunk below their usage.
    if pod.containers.values().any(is_stopping_for_resize) {
        return;
    }
    match &progress.error {
        Some(error) if error.retry_at() > now => plan.wake_at(error.retry_at()),
        _ => plan.actions.push(Action::ActuateResources { generation: progress.generation, tries: progress.tries }),
    }
}

/// Returns whether the container is being stopped for a restart with new resources.
fn is_stopping_for_resize(container: &Container) -> bool {
    let instance = container.current.as_ref().filter(|i| i.kill.is_some_and(|k| k.cause == KillCause::Resize));
    instance.is_some_and(|i| i.cleaning_up || matches!(i.state, InstanceState::Running { .. }))
}

/// Returns whether container starts wait for the Pod's cgroup to be resized; they do not once that failed.
pub(crate) fn blocks_container_starts(pod: &Pod) -> bool {
    pod.resize.cgroup.is_some() && pod.resize.progress.as_ref().is_some_and(|p| p.error.is_none())
}

/// Applies the node's decision on a resize (the pure half of `handlePodResourcesResize`).
pub(crate) fn apply_decision(pod: &mut Pod, generation: i64, decision: ResizeDecision, now: Timestamp) {
    // The decision on an older generation is stale.
    let Some(desired) =
        pod.resize.desired.clone().filter(|_| pod.object.metadata.generation.unwrap_or(0) == generation)
    else {
        return;
    };
    let (reason, message) = match decision {
        ResizeDecision::Fits => return allocate(pod, &desired, generation),
        ResizeDecision::Deferred { message } => (PendingReason::Deferred, message),
        ResizeDecision::Infeasible { message } => (PendingReason::Infeasible, message),
    };
    let old_condition = pod.resize.pending.take();
    let recorded =
        old_condition.as_ref().is_some_and(|p| (p.reason, p.generation, &p.message) == (reason, generation, &message));
    if !recorded {
        let text = events::message(&pod.desired(), generation, &format!("Pod resize {}", reason.as_str()), &message);
        record(pod, EventKind::Warning, &format!("Resize{}", reason.as_str()), text, None);
    }
    let tries = old_condition.as_ref().filter(|p| p.generation == generation).map_or(0, |p| p.tries) + 1;
    let retry_at = after(now, if tries == 1 { FIRST_RETRY } else { RETRY });
    pod.resize.pending = Some(Pending { reason, message, generation, tries, retry_at });
}

fn allocate(pod: &mut Pod, desired: &Allocation, generation: i64) {
    let previous = pod.allocation();
    for (name, resources) in &previous {
        if let Some(container) = pod.containers.get_mut(name) {
            if let Some(instance) = container.current.as_mut() {
                instance.resources.get_or_insert_with(|| resources.clone());
            }
            if container.starting {
                container.starting_with.get_or_insert_with(|| resources.clone());
            }
        }
    }
    pod.resize.cgroup.get_or_insert(previous);
    *pod.object = Arc::new(with_resources(&pod.object, desired));
    (pod.resize.desired, pod.resize.pending) = (None, None);
    pod.resize.progress = Some(Progress { generation, error: None, tries: 0 });
    let text = events::message(&pod.object, generation, "Pod resize started", "");
    record(pod, EventKind::Normal, "ResizeStarted", text, None);
}

/// Retries a deferred resize now, because resources were released.
pub(crate) fn retry_pending(pod: &mut Pod, now: Timestamp) {
    if let Some(pending) = pod.resize.pending.as_mut() {
        pending.retry_at = pending.retry_at.min(now);
    }
}

/// Records the actual resources of the Pod's cgroup and of these containers.
pub(crate) fn record_actuated(pod: &mut Pod, ids: &[String], applied: Allocation) {
    for (name, container) in &mut pod.containers {
        let instance = container.current.as_mut().filter(|i| ids.contains(&i.id));
        if let Some((instance, resources)) = instance.zip(applied.get(name)) {
            instance.resources = Some(resources.clone());
        }
    }
    pod.resize.cgroup = Some(applied);
    if let Some(progress) = pod.resize.progress.as_mut() {
        progress.error = None;
        progress.tries += 1;
    }
}

/// Records a failed actuation and schedules its retry.
pub(crate) fn record_failure(pod: &mut Pod, message: String, policy: &NodePolicy, now: Timestamp) {
    let Some(progress) = pod.resize.progress.as_mut() else { return };
    let old_error = progress.error.take();
    let recorded = old_error.as_ref().is_some_and(|e| e.message == message);
    let delay = policy.retry_backoff.next(old_error.map_or(Duration::ZERO, |e| e.delay));
    progress.error = Some(FailedAttempt { message: message.clone(), at: now, delay });
    progress.tries += 1;
    let generation = progress.generation;
    if !recorded {
        let text = events::message(&pod.object, generation, "Pod resize error", &message);
        record(pod, EventKind::Warning, "ResizeError", text, None);
    }
}

/// Restarts containers whose resize requires it, and completes a resize that is fully actuated.
pub(crate) fn complete(pod: &mut Pod, now: Timestamp) {
    let Some(progress) = pod.resize.progress.as_ref() else { return };
    let generation = progress.generation;
    let allocated = pod.allocation();
    for (name, resources) in &allocated {
        let Some(container) = pod.containers.get_mut(name) else { continue };
        if container.starting_with.as_ref() == Some(resources) {
            container.starting_with = None;
        }
        if let Some(instance) = container.current.as_mut().filter(|i| i.resources.as_ref() == Some(resources)) {
            instance.resources = None;
        }
    }
    if pod.resize.cgroup.as_ref() == Some(&allocated) {
        pod.resize.cgroup = None;
    }
    // A terminating Pod is not resized.
    if pod.kill_deadline(now).is_some() {
        return;
    }
    let restarted = containers(pod.spec()).filter(|(_, spec)| {
        let container = pod.container(&spec.name);
        container.is_running()
            && actual(container).is_some_and(|actual_resources| needs_restart(spec, actual_resources))
    });
    let restarted: Vec<String> = restarted.map(|(_, spec)| spec.name.clone()).collect();
    for name in restarted {
        kills::kill(pod, &name, KillCause::Resize, now);
    }
    let open = |c: &Container| {
        actual(c).is_some()
            || c.starting && c.starting_with.is_some()
            || c.current.as_ref().is_some_and(|i| i.kill.is_some_and(|k| k.cause == KillCause::Resize))
    };
    if pod.resize.cgroup.is_none() && !pod.containers.values().any(open) {
        pod.resize.progress = None;
        let text = events::message(&pod.object, generation, "Pod resize completed", "");
        record(pod, EventKind::Normal, "ResizeCompleted", text, None);
    }
}

/// Describes the state of a resize for `podium explain`.
pub(crate) fn explain(pod: &Pod, now: Timestamp) -> Option<String> {
    if let Some(p) = &pod.resize.pending {
        let retry = match p.reason {
            PendingReason::Deferred => {
                format!(", next retry in {}", crate::status::format_duration(elapsed(now, p.retry_at)))
            }
            PendingReason::Infeasible => String::new(),
        };
        return Some(format!("the resize is {}: {}{retry}", p.reason.as_str().to_lowercase(), p.message));
    }
    let progress = pod.resize.progress.as_ref()?;
    Some(match &progress.error {
        Some(error) => format!("the resize is allocated but cannot be actuated: {}", error.message),
        None => "the resize is allocated and is being actuated".to_owned(),
    })
}
