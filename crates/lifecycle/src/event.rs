//! Pod lifecycle events: the input of the state machine.
//!
//! The kubelet reports each change as an event to [`observe()`](crate::observe()). Events may arrive late, twice or out of order:
//! container events carry the container's id, and events of any but the newest container are ignored.

use crate::{ActionKey, Allocation, ProbeKind, ResizeDecision};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodStatus};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

/// Pod lifecycle event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PodLifecycleEvent {
    /// The newest version of the Pod's object: spec, metadata, deletion, and the conditions that others write.
    Updated(Arc<ApiPod>),
    /// The object was removed from the API (forced deletion, or the last step of an ordinary one).
    #[serde(rename = "Gone")]
    Removed,
    /// The admission decision of the node, which is final.
    Admission(Admission),
    /// The node terminates the Pod: eviction, preemption, shutdown.
    Evicted(Eviction),
    /// Volume event.
    Volumes(VolumeEvent),
    /// Sandbox event.
    Sandbox(SandboxEvent),
    /// Event about an image that a container requires.
    Image {
        /// The container's name.
        container: String,
        /// The image in the spec at the time of the request.
        image: String,
        /// The image event.
        #[serde(rename = "fact")]
        event: ImageEvent,
    },
    /// Container event.
    Container {
        /// The container's name in the spec.
        container: String,
        /// The container event.
        #[serde(rename = "fact")]
        event: ContainerEvent,
    },
    /// Result of one probe. A result without a pending [`crate::Action::Probe`] is ignored.
    Probed {
        /// The container's id.
        id: String,
        /// The probe.
        probe: ProbeKind,
        /// The result.
        outcome: ProbeOutcome,
    },
    /// A lifecycle hook ended.
    HookDone {
        /// The container's id.
        id: String,
        /// The hook.
        hook: Hook,
        /// The result.
        outcome: HookOutcome,
    },
    /// The node's decision on the resize request of this generation.
    ResizeDecided {
        /// `metadata.generation` of the request.
        generation: i64,
        /// The decision.
        #[serde(rename = "verdict")]
        decision: ResizeDecision,
    },
    /// Another Pod released resources: a deferred resize may fit now.
    #[serde(rename = "RoomMade")]
    ResourcesReleased,
    /// The node's disk is full: dead containers of terminated Pods are removed.
    DiskFull,
    /// The Pod's cgroup and these containers were updated to the allocated resources.
    ResourcesActuated {
        /// The ids of the containers.
        ids: Vec<String>,
        /// Their actual resources.
        allocation: Allocation,
    },
    /// The allocated resources could not be applied; retried with backoff.
    ResourcesFailed {
        /// Human-readable message.
        message: String,
    },
    /// The API server accepted this status update.
    StatusWritten(Box<PodStatus>),
    /// An action starts. Reported for [`crate::Action::StartContainer`], so that the termination of a Pod waits for a
    /// container that is being started.
    #[serde(rename = "Begun")]
    ActionStarted(ActionKey),
    /// An action without an event of its own succeeded (an Event was recorded, an object was deleted).
    #[serde(rename = "Done")]
    ActionSucceeded(ActionKey),
    /// An action without an event of its own failed. It is retried with backoff; its partial effects are unknown until
    /// the next relist.
    #[serde(rename = "Failed")]
    ActionFailed {
        /// The action.
        key: ActionKey,
        /// Human-readable message.
        message: String,
    },
    /// Relist: all sandboxes and containers of this Pod in the runtime, after a kubelet start and after events may have
    /// been lost. Missing sandboxes and containers are lost.
    Relisted(RuntimePodState),
    /// A kubelet started, or sees the Pod for the first time.
    KubeletStarted {
        /// When it was started.
        at: Timestamp,
        /// Random number that spreads work that is due right after a start.
        random: u64,
    },
}

/// Admission decision of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admission {
    /// The node accepts the Pod.
    Admitted,
    /// The node rejects the Pod for good; it fails with this reason and message (`pkg/kubelet/lifecycle`).
    Rejected {
        /// For example `OutOfcpu`.
        reason: String,
        /// Human-readable message.
        message: String,
    },
}

/// Why and how the node terminates a Pod (KEP-3329).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// `status.reason`: `Evicted`, `Preempting`, `Terminated`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// Grace period in seconds, if it is not the Pod's own.
    pub grace_seconds: Option<u32>,
    /// Whether the condition `DisruptionTarget` (`TerminationByKubelet`) is set.
    pub disruption_target: bool,
    /// Message of `DisruptionTarget`, if it differs from `status.message`.
    #[serde(default)]
    pub disruption_message: Option<String>,
    /// Annotations of the Event.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// Volume event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeEvent {
    /// All volumes are mounted.
    Mounted,
    /// A volume could not be mounted; retried with backoff.
    Failed {
        /// Human-readable messages, one per failed volume.
        messages: Vec<String>,
    },
    /// All volumes are unmounted.
    Unmounted,
}

/// Sandbox event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxEvent {
    /// The sandbox is ready.
    Ready {
        /// The runtime's id.
        id: String,
        /// Attempt, from 0.
        attempt: u32,
        /// IP addresses, the primary one first; the node's own with `hostNetwork`.
        ips: Vec<IpAddr>,
    },
    /// The sandbox could not be created; retried with backoff.
    Failed {
        /// The runtime's error.
        message: String,
    },
    /// Its process exited or its network is gone, unexpectedly.
    Lost {
        /// The runtime's id.
        id: String,
    },
    /// It was stopped as planned.
    Stopped {
        /// The runtime's id.
        id: String,
    },
    /// It and its containers were removed from the runtime.
    Removed {
        /// The runtime's id.
        id: String,
    },
}

/// Image event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageEvent {
    /// A pull started.
    Pulling,
    /// The image was present.
    Present {
        /// Image reference in the runtime.
        image_ref: String,
    },
    /// The image was pulled.
    Pulled {
        /// Image reference in the runtime.
        image_ref: String,
        /// Duration of the pull.
        took: Duration,
        /// Duration including the wait in the pull queue.
        took_with_wait: Duration,
        /// Size in bytes.
        size: u64,
    },
    /// The pull failed.
    PullFailed {
        /// The runtime's error.
        error: String,
    },
    /// The image is missing and the action did not allow a pull.
    MustPull,
    /// The image is unavailable, and no pull was attempted.
    Failed {
        /// `ErrImageNeverPull`, `InvalidImageName` or `ImageInspectError`.
        reason: String,
        /// Error message.
        message: String,
    },
    /// Some `imagePullSecrets` could not be read; the pull continues without them.
    SecretsMissing {
        /// Their names.
        names: Vec<String>,
    },
}

/// Container event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerEvent {
    /// The container was created.
    Created {
        /// The runtime's id, without a scheme.
        id: String,
        /// Attempt, from 0: the restart count.
        attempt: u32,
        /// Image of the container.
        image: RuntimeImage,
        /// Effective stop signal, if known: of the Pod, the image or the runtime (KEP-4960).
        stop_signal: Option<String>,
    },
    /// Its process is running.
    Started {
        /// The runtime's id.
        id: String,
        /// When.
        at: Timestamp,
    },
    /// It could not be created or started.
    StartFailed {
        /// Stage of the failure.
        stage: StartFailureStage,
        /// Error message.
        message: String,
    },
    /// Its process exited, but the runtime is still cleaning up: the end of its log may be missing. `Exited` follows;
    /// until then the container is not replaced, and nothing that it used is removed.
    Reaped {
        /// The runtime's id.
        id: String,
        /// Exit code and reason.
        exit: ContainerExit,
    },
    /// Its process exited, and the runtime finished its cleanup.
    Exited {
        /// The runtime's id.
        id: String,
        /// Exit code and reason.
        exit: ContainerExit,
    },
    /// It is missing in the runtime, and was not removed by the kubelet.
    Lost {
        /// The runtime's id.
        id: String,
    },
    /// It was removed as planned.
    Removed {
        /// The runtime's id.
        id: String,
    },
}

/// Stage at which a start failed (`pkg/kubelet/images`, `kuberuntime_container.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartFailureStage {
    /// Invalid configuration: `CreateContainerConfigError` (a missing ConfigMap or Secret, an invalid user).
    Config,
    /// Creation failed: `CreateContainerError`.
    Create,
    /// Start failed: `RunContainerError`.
    Start,
}

/// Prefix of containerd's error when the last step of a start failed.
const START_TASK_ERROR_PREFIX: &str = "failed to start containerd task";

/// Exit of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerExit {
    /// Exit code; 128 + n after signal n.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`, ...
    pub reason: String,
    /// Termination message, or the runtime's error.
    pub message: String,
    /// Start time; `None` if it never ran.
    pub started_at: Option<Timestamp>,
    /// Exit time.
    pub finished_at: Timestamp,
}

impl ContainerExit {
    /// Returns whether its process never ran. A kubelet crash cancels its requests, and the runtime aborts a cancelled
    /// start at any stage. A process that may have run is restarted only by its restart policy.
    #[must_use]
    pub fn never_ran(&self) -> bool {
        self.started_at.is_none() && !self.message.starts_with(START_TASK_ERROR_PREFIX)
    }

    /// Returns whether it was created but failed to start; it counts as run, with exit code 128 (`pkg/kubelet/events`).
    pub(crate) fn failed_to_start(&self) -> bool {
        self.started_at.is_none() && self.reason == "StartError"
    }
}

/// Result of one probe (`prober.go`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeOutcome {
    /// Success.
    Success,
    /// Success with a warning (a redirect to another host).
    Warning(String),
    /// Failure.
    Failure(String),
    /// The probe could not run: no result.
    Unknown(String),
}

/// A lifecycle hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Hook {
    /// postStart.
    PostStart,
    /// preStop.
    PreStop,
}

/// Result of a lifecycle hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookOutcome {
    /// The hook succeeded.
    Done,
    /// The hook failed; the error is only logged, because it may contain secrets.
    Failed(String),
    /// The grace period expired first.
    TimedOut,
}

/// The sandboxes and containers that the runtime lists for one Pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RuntimePodState {
    /// Sandboxes.
    pub sandboxes: Vec<RuntimeSandbox>,
    /// Containers of all attempts.
    pub containers: Vec<RuntimeContainer>,
}

/// A sandbox in the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSandbox {
    /// The runtime's id.
    pub id: String,
    /// Attempt.
    pub attempt: u32,
    /// Whether it is ready.
    pub ready: bool,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
}

/// A container in the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeContainer {
    /// The runtime's id.
    pub id: String,
    /// The container's name.
    pub name: String,
    /// Attempt.
    pub attempt: u32,
    /// Id of its sandbox.
    pub sandbox: String,
    /// Image of the container.
    pub image: RuntimeImage,
    /// Its state.
    pub state: RuntimeContainerState,
}

/// Image of a container, as the runtime reports it and the API shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeImage {
    /// Image name (`image`); empty if the runtime did not report it.
    pub name: String,
    /// Image id or digest (`imageID`).
    pub id: String,
    /// Image in the spec at creation, if the runtime stored it.
    pub spec: Option<String>,
}

/// State of a container in the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuntimeContainerState {
    /// Created, not started.
    Created,
    /// Running.
    Running {
        /// Start time.
        started_at: Timestamp,
    },
    /// Exited.
    Exited(ContainerExit),
    /// Unknown.
    Unknown,
}
