//! Actions that a plan requests from the kubelet.
//!
//! Each action has an [`ActionKey`]. A plan repeats an action until a fact says that it was carried out, so the kubelet
//! starts an action only when none with that key is in flight. Carrying one out twice must do no harm: after a restart
//! of the kubelet the plan asks again for what may already be done.

use crate::Hook;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// Identity of an action, to deduplicate actions in flight.
///
/// Two plans that ask for the same thing give the same key; a change that matters (a shorter grace period) gives another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionKey(pub String);

impl ActionKey {
    /// Whether it is that of [`Action::DecideResize`].
    #[must_use]
    pub fn is_resize(&self) -> bool {
        self.0.starts_with("resize/")
    }
}

impl std::fmt::Display for ActionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One action for the kubelet to execute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Decide whether this node takes the Pod; answered by [`crate::Event::Admission`].
    Admit,
    /// Make the Pod's directories, volumes and cgroup; answered by [`crate::VolumesFact`].
    MountVolumes,
    /// Remove them again; answered by [`crate::VolumesFact::Unmounted`].
    UnmountVolumes,
    /// Create the sandbox; answered by [`crate::SandboxFact::Ready`] or `Failed`.
    CreateSandbox {
        /// Which of the Pod's sandboxes, from 0.
        attempt: u32,
    },
    /// Stop a sandbox and release its network; answered by [`crate::SandboxFact::Stopped`].
    StopSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Remove a stopped sandbox, its containers and their logs; answered by [`crate::SandboxFact::Removed`].
    RemoveSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Make sure that the container's image is there; answered by [`crate::ImageFact`].
    EnsureImage {
        /// The container's name.
        container: String,
        /// The image of its spec.
        image: String,
        /// Whether it may be pulled; else one only looks for it, for the last pull failed a moment ago.
        pull: bool,
    },
    /// Create and start a container; answered by [`crate::ContainerFact::Created`], then `Started`, or `StartFailed`.
    StartContainer {
        /// The container's name.
        container: String,
        /// Its restart count, from 0.
        attempt: u32,
        /// The image as [`crate::ImageFact`] gave it.
        image_ref: String,
        /// The sandbox to start it in.
        sandbox: String,
    },
    /// Send the stop signal, and SIGKILL after the grace period; answered by [`crate::ContainerFact::Exited`].
    StopContainer {
        /// The container's name.
        container: String,
        /// The runtime's id.
        id: String,
        /// From now until SIGKILL.
        grace: Duration,
        /// When that is; a shorter grace period is another deadline, and so another action.
        deadline: Timestamp,
        /// `lifecycle.stopSignal` of the spec (KEP-4960); `None` for the image's, then the runtime's own.
        signal: Option<String>,
    },
    /// Remove a dead container; answered by [`crate::ContainerFact::Removed`].
    RemoveContainer {
        /// The container's name.
        container: String,
        /// The runtime's id.
        id: String,
    },
    /// Run a hook; answered by [`crate::Event::HookDone`].
    RunHook {
        /// The container's name.
        container: String,
        /// The runtime's id.
        id: String,
        /// Which hook.
        hook: Hook,
        /// When to give up; `None` leaves it to the hook (postStart has no limit of its own).
        timeout: Option<Duration>,
    },
    /// Probe a container once; answered by [`crate::Event::Probed`].
    Probe {
        /// The container's name.
        container: String,
        /// The runtime's id.
        id: String,
        /// Which probe.
        probe: ProbeKind,
        /// How often this container answered it before.
        attempt: u64,
    },
    /// Decide whether the node takes the Pod with the resources that it asks for; answered by
    /// [`crate::Event::ResizeDecided`].
    DecideResize {
        /// `metadata.generation` that asks for it.
        generation: i64,
        /// How often this was decided before.
        tries: u32,
    },
    /// Give the Pod's cgroup and its containers the resources that are allocated; answered by
    /// [`crate::Event::ResourcesActuated`] or `ResourcesFailed`.
    ActuateResources {
        /// `metadata.generation` that asked for them.
        generation: i64,
        /// How often this was tried before.
        tries: u32,
    },
    /// Record a Kubernetes Event about the Pod; answered by [`crate::Event::Done`].
    Record(PodEvent),
    /// Remove the Pod's object from the API (grace 0, this UID only), now that it is terminal there and gone here;
    /// answered by [`crate::Event::Gone`].
    DeleteFromApi,
    /// Drop all state of the Pod. Always the last action.
    Forget,
}

/// Which probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeKind {
    /// Whether the application has started.
    Startup,
    /// Whether it works; if not it is killed.
    Liveness,
    /// Whether it takes requests.
    Readiness,
}

/// A Kubernetes Event about a Pod (`pkg/kubelet/events`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEvent {
    /// Number within this Pod, for the key.
    pub sequence: u64,
    /// `Normal` or `Warning`.
    pub kind: EventKind,
    /// For example `Started`.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// The container it is about, as `spec.containers{name}`, if any.
    pub field_path: Option<String>,
    /// Annotations of the Event.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl PodEvent {
    /// One about the whole Pod that is not planned: nobody asks for it by its key.
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
    /// The word in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
