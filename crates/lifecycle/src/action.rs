//! Actions that a plan requests from the kubelet.
//!
//! Each action has an [`ActionKey`](crate::ActionKey). A plan repeats an action until an event reports its result, so the kubelet starts
//! an action only when none with that key is in flight. Actions must be idempotent: after a kubelet restart the plan
//! may repeat an action that was already executed.

use crate::Hook;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// One action for the kubelet to execute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Decide whether this node admits the Pod; answered by [`crate::PodLifecycleEvent::Admission`].
    Admit,
    /// Create the Pod's directories, volumes and cgroup; answered by [`crate::VolumeEvent`].
    MountVolumes,
    /// Remove them; answered by [`crate::VolumeEvent::Unmounted`].
    UnmountVolumes,
    /// Create the sandbox; answered by [`crate::SandboxEvent::Ready`] or `Failed`.
    CreateSandbox {
        /// Attempt, from 0.
        attempt: u32,
    },
    /// Stop a sandbox and release its network; answered by [`crate::SandboxEvent::Stopped`].
    StopSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Remove a stopped sandbox, its containers and their logs; answered by [`crate::SandboxEvent::Removed`].
    RemoveSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Ensure that the container's image is present; answered by [`crate::ImageEvent`].
    EnsureImage {
        /// The container's name.
        container: String,
        /// The image of its spec.
        image: String,
        /// Whether it may be pulled; if not, only its presence is checked, because a pull is in backoff.
        pull: bool,
    },
    /// Create and start a container; answered by [`crate::ContainerEvent::Created`], then `Started`, or `StartFailed`.
    StartContainer {
        /// The container's name.
        container: String,
        /// Its restart count, from 0.
        attempt: u32,
        /// The image reference from [`crate::ImageEvent`].
        image_ref: String,
        /// The sandbox to start it in.
        sandbox: String,
    },
    /// Send the stop signal, and SIGKILL after the grace period; answered by [`crate::ContainerEvent::Exited`].
    StopContainer {
        /// The container's name.
        container: String,
        /// The runtime's id.
        id: String,
        /// Time until SIGKILL.
        grace: Duration,
        /// Time of SIGKILL; a shorter grace period has another deadline, which makes it another action.
        deadline: Timestamp,
        /// `lifecycle.stopSignal` of the spec (KEP-4960); `None` for the signal of the image or runtime.
        signal: Option<String>,
    },
    /// Remove a dead container; answered by [`crate::ContainerEvent::Removed`].
    RemoveContainer {
        /// The container's name.
        container: String,
        /// The runtime's id.
        id: String,
    },
    /// Run a hook; answered by [`crate::PodLifecycleEvent::HookDone`].
    RunHook {
        /// The container's name.
        container: String,
        /// The runtime's id.
        id: String,
        /// The hook.
        hook: Hook,
        /// Timeout; `None` for none (postStart has no timeout).
        timeout: Option<Duration>,
    },
    /// Probe a container once; answered by [`crate::PodLifecycleEvent::Probed`].
    Probe {
        /// The container's name.
        container: String,
        /// The runtime's id.
        id: String,
        /// The probe.
        probe: ProbeKind,
        /// Number of earlier results from this container.
        attempt: u64,
    },
    /// Decide whether the requested resize fits on the node; answered by [`crate::PodLifecycleEvent::ResizeDecided`].
    DecideResize {
        /// `metadata.generation` of the request.
        generation: i64,
        /// Number of earlier decisions.
        tries: u32,
    },
    /// Apply the allocated resources to the Pod's cgroup and its containers; answered by
    /// [`crate::PodLifecycleEvent::ResourcesActuated`] or `ResourcesFailed`.
    ActuateResources {
        /// `metadata.generation` of the request.
        generation: i64,
        /// Number of earlier attempts.
        tries: u32,
    },
    /// Record a Kubernetes Event about the Pod; answered by [`crate::PodLifecycleEvent::ActionSucceeded`].
    Record(PodEvent),
    /// Delete the Pod from the API (grace period 0, UID precondition), once it is terminal in the API and cleaned up
    /// here; answered by [`crate::PodLifecycleEvent::Removed`].
    DeleteFromApi,
    /// Drop all state of the Pod. Always the last action.
    Forget,
}

/// Kind of probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeKind {
    /// Startup probe.
    Startup,
    /// Liveness probe.
    Liveness,
    /// Readiness probe.
    Readiness,
}

/// A Kubernetes Event about a Pod (`pkg/kubelet/events`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEvent {
    /// Sequence number within this Pod, part of the key.
    pub sequence: u64,
    /// `Normal` or `Warning`.
    pub kind: EventKind,
    /// For example `Started`.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// Field path of the container, as `spec.containers{name}`, if any.
    pub field_path: Option<String>,
    /// Annotations of the Event.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl PodEvent {
    /// Creates an Event about the whole Pod that is not part of a plan.
    #[must_use]
    pub fn new(kind: EventKind, reason: &str, message: String) -> Self {
        let annotations = BTreeMap::new();
        Self { sequence: 0, kind, reason: reason.to_owned(), message, field_path: None, annotations }
    }
}

/// Type of a Kubernetes Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

impl EventKind {
    /// Returns the type in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
