//! The kubelet's state of one Pod.

use crate::{
    Admission, Eviction, PodEvent,
    container::Container,
    hooks::{self, PostStart},
    images::FailedPull,
    resize::Resize,
    restart::RestartFeatures,
    restart_all::RestartAll,
    time::after,
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, Pod as ApiPod, PodSpec, PodStatus};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

/// The kubelet's state of one Pod, checkpointed to disk so that it survives a kubelet restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    pub(crate) object: Arc<ApiPod>,
    /// When the node first saw it (`status.startTime`).
    pub(crate) seen_at: Timestamp,
    pub(crate) admission: Option<Admission>,
    pub(crate) evicted: Option<(Eviction, Timestamp)>,
    /// When its grace after a deletion ends. It moves nearer when the grace is shortened, and never away.
    pub(crate) deleted: Option<Timestamp>,
    /// When the API was first seen to show a terminal phase.
    pub(crate) terminal_at: Option<Timestamp>,
    /// When its last container ended for good, but for sidecars, which end then (KEP-753).
    pub(crate) finished_at: Option<Timestamp>,
    /// Terminal phase, once reached; it never changes.
    pub(crate) ended: Option<PodOutcome>,
    /// Rebuilt from the API alone: nothing is done before the runtime has told what it has.
    pub(crate) unseen: bool,
    /// Another kubelet made what there is of it, and the runtime has not told yet what that is: nothing is made before. The
    /// answer to the last that was asked for may have been lost.
    #[serde(default)]
    pub(crate) unlisted: bool,
    /// When its object left the API.
    pub(crate) gone_at: Option<Timestamp>,
    /// The API server took our last delete; finalizers may still hold the object.
    pub(crate) delete_sent: bool,
    pub(crate) volumes: Volumes,
    pub(crate) sandboxes: Vec<Sandbox>,
    /// The attempt of the next sandbox. It never falls, so that facts about an older one stay history.
    pub(crate) next_sandbox: u32,
    pub(crate) sandbox_failure: Option<FailedAttempt>,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) containers: BTreeMap<String, Container>,
    /// All containers are being restarted (KEP-5532).
    #[serde(default)]
    pub(crate) restarting: Option<RestartAll>,
    #[serde(default)]
    pub(crate) features: RestartFeatures,
    /// When the kubelet that tells of it was started, and its random number.
    #[serde(default)]
    pub(crate) kubelet: Option<(Timestamp, u64)>,
    /// The ephemeral containers of the object, in the form of all others.
    #[serde(default)]
    pub(crate) ephemeral: Vec<Spec>,
    /// Pulls that failed, by image: all containers of the Pod wait for the same next try.
    #[serde(default)]
    pub(crate) pulls: BTreeMap<String, FailedPull>,
    /// Whether it was said that the Pod was active for too long.
    #[serde(default)]
    pub(crate) told_overdue: bool,
    /// Containers whose stop was announced, and need not be again when the Pod ends.
    pub(crate) killing: Vec<String>,
    pub(crate) outbox: Vec<PodEvent>,
    pub(crate) sequence: u64,
    /// It has left, and its containers were given up for the room that they take.
    #[serde(default)]
    pub(crate) emptied: bool,
    #[serde(default)]
    pub(crate) resize: Resize,
    pub(crate) written: Option<Box<PodStatus>>,
    pub(crate) durable: u64,
}

/// State of the Pod's volumes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Volumes {
    Absent,
    Failed(FailedAttempt),
    Mounted,
    Removed,
}

/// A sandbox that the runtime has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) state: SandboxState,
}

/// State of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SandboxState {
    Ready,
    /// Broken since: its containers are to be stopped, then itself.
    Lost(Timestamp),
    Stopped,
}

/// A failed step that is retried with backoff.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FailedAttempt {
    pub(crate) message: String,
    pub(crate) at: Timestamp,
    pub(crate) delay: Duration,
}

impl FailedAttempt {
    pub(crate) fn retry_at(&self) -> Timestamp {
        after(self.at, self.delay)
    }
}

/// Terminal phase of a Pod with its reason and message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodOutcome {
    pub(crate) at: Timestamp,
    pub(crate) succeeded: bool,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

impl Pod {
    /// A Pod that the node sees for the first time.
    #[must_use]
    pub fn new(object: Arc<ApiPod>, now: Timestamp) -> Self {
        let seen_at = object.status.as_ref().and_then(|s| s.start_time.as_ref()).map_or(now, |t| t.0);
        let mut pod = Self {
            object: Arc::clone(&object),
            seen_at,
            admission: None,
            evicted: None,
            deleted: None,
            terminal_at: None,
            finished_at: None,
            ended: None,
            unseen: false,
            unlisted: false,
            gone_at: None,
            delete_sent: false,
            volumes: Volumes::Absent,
            sandboxes: Vec::new(),
            next_sandbox: 0,
            sandbox_failure: None,
            ips: Vec::new(),
            containers: BTreeMap::new(),
            restarting: None,
            features: RestartFeatures::default(),
            kubelet: None,
            ephemeral: Vec::new(),
            pulls: BTreeMap::new(),
            told_overdue: false,
            killing: Vec::new(),
            outbox: Vec::new(),
            sequence: 0,
            emptied: false,
            resize: Resize::default(),
            written: None,
            durable: 0,
        };
        crate::observe::updated(&mut pod, object, now);
        crate::restore_from_status::restore_from_status(&mut pod);
        crate::observe::store_terminal_phase(&mut pod, now);
        pod
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or("")
    }

    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or("")
    }

    /// `metadata.namespace`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.object.metadata.namespace.as_deref().unwrap_or("")
    }

    /// When the kubelet saw it first: its `status.startTime`.
    #[must_use]
    pub fn seen_at(&self) -> Timestamp {
        self.seen_at
    }

    /// The newest version of its object, with the resources that are allocated to it.
    #[must_use]
    pub fn object(&self) -> &Arc<ApiPod> {
        &self.object
    }

    /// Rises whenever a fact was folded in that must be on disk before it is acted upon.
    #[must_use]
    pub fn durable_revision(&self) -> u64 {
        self.durable
    }

    /// Whether its object left the API.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone_at.is_some()
    }

    /// Whether the node admitted it.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.admission == Some(Admission::Admitted)
    }

    /// Whether it has ended, or is on its way to its end, whatever the node does.
    #[must_use]
    pub fn is_ending(&self, now: Timestamp) -> bool {
        self.ended.is_some() || self.finished() || self.stop(now).is_some()
    }

    /// Whether the runtime has not told yet, since the kubelet started, what there is of it: it may have ended meanwhile, and
    /// nothing may be decided about it by what it seems to take.
    #[must_use]
    pub const fn awaits_list(&self) -> bool {
        self.unseen || self.unlisted
    }

    /// Whether it ends, and what it had of the node is free: whoever made room by letting it go can look again.
    #[must_use]
    pub fn has_made_room(&self, now: Timestamp) -> bool {
        self.is_ending(now) && !self.any_may_run() && self.is_settled()
    }

    /// The runtime's id and restart count of a container: the newest one, or the one before.
    #[must_use]
    pub fn container_id(&self, name: &str, previous: bool) -> Option<(String, u32)> {
        let container = self.containers.get(name)?;
        let current = container.current.as_ref()?;
        if previous {
            let ended = container.last.as_ref()?;
            Some((ended.id.clone(), current.attempt.checked_sub(1)?))
        } else {
            Some((current.id.clone(), current.attempt))
        }
    }

    /// Whether a container's process runs.
    #[must_use]
    pub fn is_running(&self, name: &str) -> bool {
        self.containers.get(name).is_some_and(Container::is_running)
    }

    /// The id of the ready sandbox.
    #[must_use]
    pub fn sandbox_id(&self) -> Option<&str> {
        self.ready_sandbox().map(|s| s.id.as_str())
    }

    /// Whether the runtime's id belongs to this Pod.
    #[must_use]
    pub fn owns(&self, id: &str) -> bool {
        self.sandboxes.iter().any(|s| s.id == id)
            || self.containers.values().any(|c| c.current.as_ref().is_some_and(|i| i.id == id))
    }

    /// The addresses of the Pod.
    #[must_use]
    pub fn ips(&self) -> &[IpAddr] {
        &self.ips
    }

    pub(crate) fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// All containers of the spec, the ephemeral ones last.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Spec)> {
        containers(self.spec()).chain(self.ephemeral.iter().map(|c| (ContainerKind::Ephemeral, c)))
    }

    pub(crate) fn container_spec(&self, name: &str) -> Option<(ContainerKind, &Spec)> {
        self.all_containers().find(|(_, c)| c.name == name)
    }

    /// What the spec says of a container of any kind.
    #[must_use]
    pub fn spec_of(&self, name: &str) -> Option<&Spec> {
        self.container_spec(name).map(|(_, spec)| spec)
    }

    pub(crate) fn container(&self, name: &str) -> &Container {
        static EMPTY: std::sync::LazyLock<Container> = std::sync::LazyLock::new(Container::default);
        self.containers.get(name).unwrap_or(&EMPTY)
    }

    pub(crate) fn ready_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.iter().rev().find(|s| s.state == SandboxState::Ready)
    }

    /// The container of the spec whose newest one has this id.
    #[must_use]
    pub fn name_of(&self, id: &str) -> Option<String> {
        let newest = |c: &Container| c.current.as_ref().is_some_and(|i| i.id == id);
        self.containers.iter().find(|(_, c)| newest(c)).map(|(name, _)| name.clone())
    }

    /// How far the postStart hook of a container has come whose process runs and which counts as waiting for it.
    pub(crate) fn still_starting(&self, spec: &Spec, now: Timestamp) -> Option<PostStart> {
        let progress = hooks::post_start(self.container(&spec.name), spec).filter(|p| *p != PostStart::Done)?;
        // What is stopped with its Pod runs for as long as it does.
        self.kill_deadline(now).is_none().then_some(progress)
    }

    /// Whether any process of the Pod runs, or may at any moment.
    pub(crate) fn any_may_run(&self) -> bool {
        self.containers.values().any(Container::may_run)
    }

    /// Whether nothing of it holds any more what belongs to the node: its sandboxes are stopped, and its volumes are gone.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.sandboxes.iter().all(|s| s.state == SandboxState::Stopped)
            && matches!(self.volumes, Volumes::Absent | Volumes::Removed)
    }

    /// Since when a sandbox is broken that was not yet stopped.
    pub(crate) fn lost_sandbox(&self) -> Option<(&Sandbox, Timestamp)> {
        self.sandboxes.iter().find_map(|s| match s.state {
            SandboxState::Lost(since) => Some((s, since)),
            _ => None,
        })
    }

    /// The terminal phase that the API shows, if it does: it never changes again.
    pub(crate) fn written_phase(&self) -> Option<&str> {
        let terminal = |p: &str| matches!(p, "Succeeded" | "Failed");
        let ours = self.written.as_ref().and_then(|s| s.phase.as_deref()).filter(|p| terminal(p));
        ours.or_else(|| self.object.status.as_ref().and_then(|s| s.phase.as_deref()).filter(|p| terminal(p)))
    }

    /// Whether every container has ended for good: nothing is left to run. Sidecars do not count.
    pub(crate) fn finished(&self) -> bool {
        let ended =
            |kind, spec: &Spec| self.container(&spec.name).exit().is_some_and(|e| !self.restarts(kind, spec, e.code));
        let mut app = containers(self.spec()).filter(|(kind, _)| *kind == ContainerKind::App).peekable();
        let failed_init = containers(self.spec()).any(|(kind, c)| {
            kind == ContainerKind::Init && ended(kind, c) && self.container(&c.name).exit().is_some_and(|e| e.code != 0)
        });
        failed_init || (app.peek().is_some() && app.all(|(kind, c)| ended(kind, c)))
    }
}
