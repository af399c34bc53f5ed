//! In-place resize (KEP-1287): the resources that a Pod asks for, those that are allocated to it, and
//! those that its containers have.
//!
//! The Pod's object holds what is allocated, so that all that is done with the Pod follows that. Only here it is known
//! that something else is asked for.

mod events;
mod verdict;

pub use verdict::{ResizeVerdict, decide};

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
    resources::{self, Amounts, Side},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container as Spec, Pod as ApiPod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Resources by the name of the container.
pub type Allocation = BTreeMap<String, ResourceRequirements>;

/// How long after the first try a resize that had to be deferred is tried again, if nothing happens before.
const FIRST_RETRY: Duration = Duration::from_secs(30);
/// And after every other.
const RETRY: Duration = Duration::from_secs(180);

/// How far a resize has come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Resize {
    /// What the API asks for, where it is not what is allocated.
    asked: Option<Allocation>,
    /// Why it is not allocated, if that was tried.
    pub(crate) pending: Option<Pending>,
    /// What was allocated and does not apply yet.
    pub(crate) progress: Option<Progress>,
    /// What the Pod's cgroup was made for, where that is not what is allocated.
    cgroup: Option<Allocation>,
}

/// A resize that is not allocated (`PodResizePending`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) reason: PendingReason,
    pub(crate) message: String,
    /// `metadata.generation` of the Pod that asks for it.
    pub(crate) generation: i64,
    tries: u32,
    retry_at: Timestamp,
}

/// Whether there is hope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PendingReason {
    /// It does not fit now.
    Deferred,
    /// It never will.
    Infeasible,
}

impl PendingReason {
    /// The word in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// A resize that is allocated and does not apply yet (`PodResizeInProgress`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// `metadata.generation` of the Pod that asked for it.
    pub(crate) generation: i64,
    pub(crate) error: Option<FailedAttempt>,
    tries: u32,
}

/// Init containers run with what they were made with; all others can be resized.
pub(crate) fn is_resizable(kind: ContainerKind) -> bool {
    kind != ContainerKind::Init
}

fn allocation(spec: &PodSpec) -> Allocation {
    let resizable = containers(spec).filter(|(kind, _)| is_resizable(*kind));
    resizable.map(|(_, c)| (c.name.clone(), c.resources.clone().unwrap_or_default())).collect()
}

/// The same object with these resources.
fn with(object: &ApiPod, allocation: &Allocation) -> ApiPod {
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
    /// What is allocated to its containers.
    #[must_use]
    pub fn allocation(&self) -> Allocation {
        allocation(self.spec())
    }

    /// What its cgroup was made for.
    #[must_use]
    pub fn cgroup_allocation(&self) -> Allocation {
        self.resize.cgroup.clone().unwrap_or_else(|| self.allocation())
    }

    /// The Pod with these resources.
    #[must_use]
    pub fn with_allocation(&self, allocation: &Allocation) -> ApiPod {
        with(&self.object, allocation)
    }

    /// The Pod with the resources that it asks for.
    #[must_use]
    pub fn desired(&self) -> ApiPod {
        self.resize.asked.as_ref().map_or_else(|| ApiPod::clone(&self.object), |asked| with(&self.object, asked))
    }

    /// Whether it waits for room on its node.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.resize.pending.as_ref().is_some_and(|p| p.reason == PendingReason::Deferred)
    }

    /// The Pod with the most that each of its containers may take of the node: what is allocated to it, what it has, and
    /// what it asks for, if that was granted.
    #[must_use]
    pub fn in_use(&self, granted: bool) -> Arc<ApiPod> {
        let asked = self.resize.asked.as_ref().filter(|_| granted);
        if self.resize.progress.is_none() && asked.is_none() {
            return Arc::clone(&self.object);
        }
        let most = self.allocation().into_iter().map(|(name, mut resources)| {
            let has = actual(self.container(&name)).and_then(|r| r.requests.as_ref());
            let asks = asked.and_then(|a| a.get(&name)).and_then(|r| r.requests.as_ref());
            let mut requests = resources::amounts(resources.requests.as_ref());
            [has, asks].into_iter().for_each(|list| resources::raise(&mut requests, &resources::amounts(list)));
            resources.requests =
                Some(requests.into_iter().map(|(n, a)| (n.clone(), resources::shown(&n, a))).collect());
            (name, resources)
        });
        Arc::new(self.with_allocation(&most.collect()))
    }

    /// What it takes of its node.
    #[must_use]
    pub fn footprint(&self) -> Amounts {
        if !self.is_admitted() || self.has_ended() || self.is_gone() {
            return Amounts::new();
        }
        self.in_use(false).spec.as_ref().map(|spec| resources::pod(spec, Side::Requests)).unwrap_or_default()
    }

    /// Containers that run with other resources than are allocated to them and can be changed as they run, with their ids.
    #[must_use]
    pub fn to_update(&self) -> Vec<(String, String)> {
        let differing = containers(self.spec()).filter_map(|(_, spec)| {
            let container = self.container(&spec.name);
            let had = actual(container).filter(|_| container.is_running())?;
            (!needs_restart(spec, had)).then(|| (spec.name.clone(), container.current.as_ref().map(|i| i.id.clone())))
        });
        differing.filter_map(|(name, id)| Some((name, id?))).collect()
    }

    /// The resources that a container has.
    #[must_use]
    pub fn actual_resources(&self, name: &str) -> ResourceRequirements {
        let allocated = || self.container_spec(name).and_then(|(_, c)| c.resources.clone());
        actual(self.container(name)).cloned().or_else(allocated).unwrap_or_default()
    }
}

/// What a container was made with or changed to, where that is not what is allocated.
fn actual(container: &Container) -> Option<&ResourceRequirements> {
    container.current.as_ref().filter(|i| !matches!(i.state, InstanceState::Exited(_)))?.resources.as_ref()
}

/// Whether the container is to be restarted for what changes (`resizePolicy`).
fn needs_restart(spec: &Spec, had: &ResourceRequirements) -> bool {
    let none = ResourceRequirements::default();
    let has = spec.resources.as_ref().unwrap_or(&none);
    let amount = |r: &ResourceRequirements, name: &str| {
        let get = |list: Option<&BTreeMap<String, Quantity>>| list.and_then(|l| l.get(name).cloned());
        (get(r.requests.as_ref()), get(r.limits.as_ref()))
    };
    spec.resize_policy.iter().flatten().any(|policy| {
        let name = policy.resource_name.as_str();
        policy.restart_policy == "RestartContainer" && amount(had, name) != amount(has, name)
    })
}

/// The object that the node works with when the API shows this one: with the resources that are allocated, once some are.
pub(crate) fn updated(pod: &mut Pod, object: Arc<ApiPod>) -> Arc<ApiPod> {
    if !pod.is_admitted() {
        return object;
    }
    let asked = object.spec.as_ref().map(allocation).unwrap_or_default();
    let known = pod.allocation();
    let same = asked.iter().all(|(name, resources)| known.get(name).is_none_or(|k| k == resources));
    if same {
        // What was asked for is asked for no more.
        pod.durable += u64::from(pod.resize.asked.is_some());
        (pod.resize.asked, pod.resize.pending) = (None, None);
        return object;
    }
    let object = Arc::new(with(&object, &known));
    if pod.resize.asked.as_ref() != Some(&asked) {
        pod.resize.asked = Some(asked);
        pod.durable += 1;
    }
    object
}

/// What the API shows is allocated, of a Pod of which nothing else is known.
pub(crate) fn restore(pod: &mut Pod, allocated: &Allocation) {
    let asked = pod.allocation();
    let known: Allocation = allocated
        .iter()
        .filter(|(name, r)| asked.get(*name).is_some_and(|a| a != *r))
        .map(|(n, r)| (n.clone(), r.clone()))
        .collect();
    if !known.is_empty() {
        pod.object = Arc::new(with(&pod.object, &known));
        pod.resize.asked = Some(asked);
    }
}

/// What is to be done for a Pod that lives.
pub(crate) fn plan(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let generation = pod.object.metadata.generation.unwrap_or(0);
    if pod.resize.asked.is_some() {
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
    // What is restarted for it goes first, as upstream's `SyncPod` has it: no cgroup gets smaller than one that is in it.
    if pod.containers.values().any(leaves) {
        return;
    }
    match &progress.error {
        Some(error) if error.retry_at() > now => plan.wake_at(error.retry_at()),
        _ => plan.actions.push(Action::ActuateResources { generation: progress.generation, tries: progress.tries }),
    }
}

/// Whether it is on its way out, to be made anew with other resources.
fn leaves(container: &Container) -> bool {
    let instance = container.current.as_ref().filter(|i| i.kill.is_some_and(|k| k.cause == KillCause::Resize));
    instance.is_some_and(|i| i.clearing || matches!(i.state, InstanceState::Running { .. }))
}

/// Whether containers wait for the Pod's cgroup to be made larger; when that failed they try.
pub(crate) fn holds_starts(pod: &Pod) -> bool {
    pod.resize.cgroup.is_some() && pod.resize.progress.as_ref().is_some_and(|p| p.error.is_none())
}

/// The node was asked whether it takes the Pod with what it asks for.
pub(crate) fn decided(pod: &mut Pod, generation: i64, verdict: ResizeVerdict, now: Timestamp) {
    // What was asked for since is another question.
    let Some(asked) = pod.resize.asked.clone().filter(|_| pod.object.metadata.generation.unwrap_or(0) == generation)
    else {
        return;
    };
    pod.durable += 1;
    let (reason, message) = match verdict {
        ResizeVerdict::Fits => return allocate(pod, &asked, generation),
        ResizeVerdict::Deferred { message } => (PendingReason::Deferred, message),
        ResizeVerdict::Infeasible { message } => (PendingReason::Infeasible, message),
    };
    let before = pod.resize.pending.take();
    let told = before.as_ref().is_some_and(|p| (p.reason, p.generation, &p.message) == (reason, generation, &message));
    if !told {
        let text = events::message(&pod.desired(), generation, &format!("Pod resize {}", reason.as_str()), &message);
        record(pod, EventKind::Warning, &format!("Resize{}", reason.as_str()), text, None);
    }
    let tries = before.as_ref().filter(|p| p.generation == generation).map_or(0, |p| p.tries) + 1;
    let retry_at = after(now, if tries == 1 { FIRST_RETRY } else { RETRY });
    pod.resize.pending = Some(Pending { reason, message, generation, tries, retry_at });
}

fn allocate(pod: &mut Pod, asked: &Allocation, generation: i64) {
    let had = pod.allocation();
    for (name, resources) in &had {
        if let Some(container) = pod.containers.get_mut(name) {
            if let Some(instance) = container.current.as_mut() {
                instance.resources.get_or_insert_with(|| resources.clone());
            }
            if container.starting {
                container.starting_with.get_or_insert_with(|| resources.clone());
            }
        }
    }
    pod.resize.cgroup.get_or_insert(had);
    pod.object = Arc::new(with(&pod.object, asked));
    (pod.resize.asked, pod.resize.pending) = (None, None);
    pod.resize.progress = Some(Progress { generation, error: None, tries: 0 });
    let text = events::message(&pod.object, generation, "Pod resize started", "");
    record(pod, EventKind::Normal, "ResizeStarted", text, None);
}

/// There may be room now where there was none.
pub(crate) fn room_was_made(pod: &mut Pod, now: Timestamp) {
    if let Some(pending) = pod.resize.pending.as_mut() {
        pending.retry_at = pending.retry_at.min(now);
    }
}

/// The Pod's cgroup, and these containers, have these resources now.
pub(crate) fn actuated(pod: &mut Pod, ids: &[String], applied: Allocation) {
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
    pod.durable += 1;
}

/// They could not be given to it.
pub(crate) fn failed(pod: &mut Pod, message: String, policy: &NodePolicy, now: Timestamp) {
    let Some(progress) = pod.resize.progress.as_mut() else { return };
    let before = progress.error.take();
    let told = before.as_ref().is_some_and(|e| e.message == message);
    let delay = policy.retry_backoff.next(before.map_or(Duration::ZERO, |e| e.delay));
    progress.error = Some(FailedAttempt { message: message.clone(), at: now, delay });
    progress.tries += 1;
    let generation = progress.generation;
    pod.durable += 1;
    if !told {
        let text = events::message(&pod.object, generation, "Pod resize error", &message);
        record(pod, EventKind::Warning, "ResizeError", text, None);
    }
}

/// What follows from every fact: containers are restarted for what they cannot take as they run, and a resize that
/// applies everywhere is complete.
pub(crate) fn settle(pod: &mut Pod, now: Timestamp) {
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
    // What ends takes its leave as it is.
    if pod.kill_deadline(now).is_some() {
        return;
    }
    let restarted = containers(pod.spec()).filter(|(_, spec)| {
        let container = pod.container(&spec.name);
        container.is_running() && actual(container).is_some_and(|had| needs_restart(spec, had))
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
        pod.durable += 1;
        let text = events::message(&pod.object, generation, "Pod resize completed", "");
        record(pod, EventKind::Normal, "ResizeCompleted", text, None);
    }
}

/// Why a resize is not done yet, for people.
pub(crate) fn explain(pod: &Pod, now: Timestamp) -> Option<String> {
    if let Some(p) = &pod.resize.pending {
        let again = match p.reason {
            PendingReason::Deferred => {
                format!(", tried again in {}", crate::status::format_duration(elapsed(now, p.retry_at)))
            }
            PendingReason::Infeasible => String::new(),
        };
        return Some(format!("its resize is {}: {}{again}", p.reason.as_str().to_lowercase(), p.message));
    }
    let progress = pod.resize.progress.as_ref()?;
    Some(match &progress.error {
        Some(error) => format!("its resize is allocated and cannot be applied: {}", error.message),
        None => "its resize is allocated and being applied".to_owned(),
    })
}
