//! The kubelet's state of one Pod.

use crate::{
    Admission, Eviction, PodEvent,
    container::Container,
    hooks::{self, PostStart},
    image_backoff::FailedPull,
    resize::Resize,
    restart::RestartFeatures,
    restart_all::RestartAll,
    time::after,
    volatile::Volatile,
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, Pod as ApiPod, PodSpec, PodStatus};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

/// The kubelet's state of one Pod, checkpointed to disk so that it survives a kubelet restart.
///
/// Equal states have the same durable part: all fields but the [`Volatile`] ones. [`crate::observe()`] counts its changes,
/// so a new field is durable unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    pub(crate) object: Volatile<Arc<ApiPod>>,
    /// When the kubelet first saw the Pod (`status.startTime`).
    pub(crate) seen_at: Timestamp,
    pub(crate) admission: Option<Admission>,
    pub(crate) evicted: Option<(Eviction, Timestamp)>,
    /// When its grace period ends after a deletion. A later request can only shorten it.
    pub(crate) deleted: Option<Timestamp>,
    /// When the API first showed a terminal phase.
    pub(crate) terminal_at: Option<Timestamp>,
    /// When its last container finished, except sidecars, which are stopped then (KEP-753).
    pub(crate) finished_at: Option<Timestamp>,
    /// Terminal phase, once reached; it never changes.
    pub(crate) ended: Option<PodOutcome>,
    /// Restored from the API without a checkpoint: nothing is planned before the first relist.
    pub(crate) unseen: bool,
    /// A previous kubelet ran the Pod and the runtime was not listed yet: nothing is created before, because the result
    /// of its last action may be lost.
    #[serde(default)]
    pub(crate) unlisted: Volatile<bool>,
    /// When its object was removed from the API.
    pub(crate) gone_at: Option<Timestamp>,
    /// The API server accepted our deletion; finalizers may still keep the object.
    pub(crate) delete_sent: Volatile<bool>,
    pub(crate) volumes: Volatile<Volumes>,
    pub(crate) sandboxes: Vec<Sandbox>,
    /// Attempt of the next sandbox. It never decreases, so that events of older sandboxes are ignored.
    pub(crate) next_sandbox: u32,
    pub(crate) sandbox_failure: Option<FailedAttempt>,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) containers: BTreeMap<String, Container>,
    /// Restart of all containers in progress (KEP-5532).
    #[serde(default)]
    pub(crate) restarting: Option<RestartAll>,
    #[serde(default)]
    pub(crate) features: RestartFeatures,
    /// Start time and random number of the current kubelet.
    #[serde(default)]
    pub(crate) kubelet: Volatile<Option<(Timestamp, u64)>>,
    /// Ephemeral containers of the object, as regular containers.
    #[serde(default)]
    pub(crate) ephemeral: Vec<Spec>,
    /// Failed pulls by image; the containers of the Pod share the backoff.
    #[serde(default)]
    pub(crate) pulls: BTreeMap<String, FailedPull>,
    /// Whether the `DeadlineExceeded` Event was recorded.
    #[serde(default, rename = "told_overdue")]
    pub(crate) deadline_event_recorded: bool,
    /// Ids of containers whose `Killing` Event was recorded.
    pub(crate) killing: Vec<String>,
    pub(crate) outbox: Vec<PodEvent>,
    pub(crate) sequence: u64,
    /// Whether its dead containers were given up because the disk was full.
    #[serde(default)]
    pub(crate) emptied: bool,
    #[serde(default)]
    pub(crate) resize: Resize,
    pub(crate) written: Option<Arc<PodStatus>>,
    /// Number of changes of the durable state; see [`Pod::durable_revision`].
    #[serde(rename = "durable")]
    pub(crate) revision: u64,
}

/// State of the Pod's volumes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Volumes {
    Absent,
    Failed(FailedAttempt),
    Mounted,
    Removed,
}

/// A sandbox in the runtime.
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
    /// Not ready since: its containers are stopped, then the sandbox.
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
    /// Creates the state of a Pod that the kubelet sees for the first time.
    #[must_use]
    pub fn new(object: Arc<ApiPod>, now: Timestamp) -> Self {
        let seen_at = object.status.as_ref().and_then(|s| s.start_time.as_ref()).map_or(now, |t| t.0);
        let mut pod = Self {
            object: Volatile(Arc::clone(&object)),
            seen_at,
            admission: None,
            evicted: None,
            deleted: None,
            terminal_at: None,
            finished_at: None,
            ended: None,
            unseen: false,
            unlisted: Volatile(false),
            gone_at: None,
            delete_sent: Volatile(false),
            volumes: Volatile(Volumes::Absent),
            sandboxes: Vec::new(),
            next_sandbox: 0,
            sandbox_failure: None,
            ips: Vec::new(),
            containers: BTreeMap::new(),
            restarting: None,
            features: RestartFeatures::default(),
            kubelet: Volatile(None),
            ephemeral: Vec::new(),
            pulls: BTreeMap::new(),
            deadline_event_recorded: false,
            killing: Vec::new(),
            outbox: Vec::new(),
            sequence: 0,
            emptied: false,
            resize: Resize::default(),
            written: None,
            revision: 0,
        };
        crate::observe::updated(&mut pod, object, now);
        crate::restore_from_status::restore_from_status(&mut pod);
        crate::observe::store_terminal_phase(&mut pod, now);
        pod
    }

    /// Returns `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or("")
    }

    /// Returns `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or("")
    }

    /// Returns `metadata.namespace`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.object.metadata.namespace.as_deref().unwrap_or("")
    }

    /// Returns when the kubelet first saw the Pod (`status.startTime`).
    #[must_use]
    pub fn seen_at(&self) -> Timestamp {
        self.seen_at
    }

    /// Returns the newest object, with the allocated resources.
    #[must_use]
    pub fn object(&self) -> &Arc<ApiPod> {
        &self.object
    }

    /// Returns the revision of the state that must be persisted before acting on it.
    #[must_use]
    pub fn durable_revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether its object was removed from the API.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone_at.is_some()
    }

    /// Returns whether the node admitted it.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.admission == Some(Admission::Admitted)
    }

    /// Returns whether it is terminal or terminating.
    #[must_use]
    pub fn is_ending(&self, now: Timestamp) -> bool {
        self.ended.is_some() || self.finished() || self.stop(now).is_some()
    }

    /// Returns whether the runtime was not listed since the kubelet started. The Pod may have ended, so its resource
    /// usage must not be used for decisions.
    #[must_use]
    pub const fn awaits_relist(&self) -> bool {
        self.unseen || self.unlisted.0
    }

    /// Returns whether it is terminating and has released the node's resources.
    #[must_use]
    pub fn has_released_resources(&self, now: Timestamp) -> bool {
        self.is_ending(now) && !self.any_may_run() && self.is_settled()
    }

    /// Returns the runtime's id and restart count of the current or previous container.
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

    /// Returns whether a container's process is running.
    #[must_use]
    pub fn is_running(&self, name: &str) -> bool {
        self.containers.get(name).is_some_and(Container::is_running)
    }

    /// Returns the id of the ready sandbox.
    #[must_use]
    pub fn sandbox_id(&self) -> Option<&str> {
        self.ready_sandbox().map(|s| s.id.as_str())
    }

    /// Returns whether the runtime's id belongs to this Pod.
    #[must_use]
    pub fn owns(&self, id: &str) -> bool {
        self.sandboxes.iter().any(|s| s.id == id)
            || self.containers.values().any(|c| c.current.as_ref().is_some_and(|i| i.id == id))
    }

    /// Returns the Pod's IP addresses.
    #[must_use]
    pub fn ips(&self) -> &[IpAddr] {
        &self.ips
    }

    pub(crate) fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// Returns all containers of the spec, the ephemeral ones last.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Spec)> {
        containers(self.spec()).chain(self.ephemeral.iter().map(|c| (ContainerKind::Ephemeral, c)))
    }

    pub(crate) fn container_spec(&self, name: &str) -> Option<(ContainerKind, &Spec)> {
        self.all_containers().find(|(_, c)| c.name == name)
    }

    /// Returns the spec of a container of any kind.
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

    /// Returns the name of the container whose current id this is.
    #[must_use]
    pub fn name_of(&self, id: &str) -> Option<String> {
        let newest = |c: &Container| c.current.as_ref().is_some_and(|i| i.id == id);
        self.containers.iter().find(|(_, c)| newest(c)).map(|(name, _)| name.clone())
    }

    /// Returns the state of the postStart hook for which a running container still counts as waiting.
    pub(crate) fn pending_post_start(&self, spec: &Spec, now: Timestamp) -> Option<PostStart> {
        let progress = hooks::post_start(self.container(&spec.name), spec).filter(|p| *p != PostStart::Done)?;
        // During termination a running process is shown as running.
        self.kill_deadline(now).is_none().then_some(progress)
    }

    /// Returns whether any process of the Pod is running or being started.
    pub(crate) fn any_may_run(&self) -> bool {
        self.containers.values().any(Container::may_run)
    }

    /// Returns whether it holds no resources of the node: its sandboxes are stopped and its volumes unmounted.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.sandboxes.iter().all(|s| s.state == SandboxState::Stopped)
            && matches!(*self.volumes, Volumes::Absent | Volumes::Removed)
    }

    /// Returns the lost sandbox that was not stopped yet, and since when it is lost.
    pub(crate) fn lost_sandbox(&self) -> Option<(&Sandbox, Timestamp)> {
        self.sandboxes.iter().find_map(|s| match s.state {
            SandboxState::Lost(since) => Some((s, since)),
            _ => None,
        })
    }

    /// Returns the terminal phase in the API, if any; it never changes.
    pub(crate) fn written_phase(&self) -> Option<&str> {
        let terminal = |p: &str| matches!(p, "Succeeded" | "Failed");
        let own_phase = self.written.as_ref().and_then(|s| s.phase.as_deref()).filter(|p| terminal(p));
        own_phase.or_else(|| self.object.status.as_ref().and_then(|s| s.phase.as_deref()).filter(|p| terminal(p)))
    }

    /// Returns whether every container except sidecars has finished for good.
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
