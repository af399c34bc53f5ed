//! Pod lifecycle events: the input of the state machine.
//!
//! The kubelet reports each change as an event to [`crate::observe`]. Events may arrive late, twice or out of order:
//! container events carry the container's id, and events of any but the newest container are ignored.

use crate::{ActionKey, Allocation, ProbeKind, ResizeVerdict};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodStatus};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

/// Pod lifecycle event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The newest version of the Pod's object: spec, metadata, deletion, and the conditions that others write.
    Updated(Arc<ApiPod>),
    /// The object was removed from the API (forced deletion, or the last step of an ordinary one).
    Gone,
    /// The admission decision of the node, which is final.
    Admission(Admission),
    /// The node terminates the Pod: eviction, preemption, shutdown.
    Evicted(Eviction),
    /// About the Pod's volumes.
    Volumes(VolumesFact),
    /// About the Pod's sandbox.
    Sandbox(SandboxFact),
    /// About the image of one container of the spec.
    Image {
        /// The container's name.
        container: String,
        /// The image of the spec when it was asked for.
        image: String,
        /// What is known now.
        fact: ImageFact,
    },
    /// About a container.
    Container {
        /// The container's name in the spec.
        container: String,
        /// What happened.
        fact: ContainerFact,
    },
    /// Result of one probe. A result without a pending [`crate::Action::Probe`] is ignored.
    Probed {
        /// The container's id.
        id: String,
        /// Which of its probes.
        probe: ProbeKind,
        /// The result.
        outcome: ProbeOutcome,
    },
    /// A lifecycle hook ended.
    HookDone {
        /// The container's id.
        id: String,
        /// Which of its hooks.
        hook: Hook,
        /// The result.
        outcome: HookOutcome,
    },
    /// Whether the node takes the Pod with the resources that it asks for, in this generation.
    ResizeDecided {
        /// `metadata.generation` that was decided upon.
        generation: i64,
        /// The decision.
        verdict: ResizeVerdict,
    },
    /// Another Pod released resources: a deferred resize may fit now.
    RoomMade,
    /// The node's disk is full: dead containers of terminated Pods are removed.
    DiskFull,
    /// The Pod's cgroup and these containers have the resources that were allocated.
    ResourcesActuated {
        /// The ids of the containers.
        ids: Vec<String>,
        /// What they have now.
        allocation: Allocation,
    },
    /// Resources that were allocated could not be given to the Pod; tried again after a back-off.
    ResourcesFailed {
        /// Human-readable message.
        message: String,
    },
    /// The API server accepted this status update.
    StatusWritten(Box<PodStatus>),
    /// An action begins. Reported for [`crate::Action::StartContainer`], so that the termination of a Pod waits for a
    /// container that is being started.
    Begun(ActionKey),
    /// An action without an event of its own succeeded (an Event was recorded, an object was deleted).
    Done(ActionKey),
    /// An action without an event of its own failed. It is planned again after a back-off; what it did before it failed is
    /// not known until the runtime is listed.
    Failed {
        /// The action.
        key: ActionKey,
        /// What went wrong, in words for people.
        message: String,
    },
    /// All that the runtime has of this Pod, asked for as a whole: after a start of the kubelet, and after events may
    /// have been lost. What the runtime no longer has is lost.
    Relisted(RuntimeView),
    /// A kubelet that was just started takes over, or sees the Pod for the first time.
    KubeletStarted {
        /// When it was started.
        at: Timestamp,
        /// Its random number: what is due at once after a start is spread by it.
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
    /// Grace in seconds, if it is not the Pod's own.
    pub grace_seconds: Option<u32>,
    /// Whether the condition `DisruptionTarget` (`TerminationByKubelet`) is set.
    pub disruption_target: bool,
    /// Its message, if it is another one than that of the status.
    #[serde(default)]
    pub disruption_message: Option<String>,
    /// Of the Event that tells of it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// Volume event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumesFact {
    /// All are there.
    Mounted,
    /// One or more could not be set up; tried again after a back-off.
    Failed {
        /// For people: one for each that could not.
        messages: Vec<String>,
    },
    /// All are gone.
    Unmounted,
}

/// Sandbox event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxFact {
    /// The sandbox is ready.
    Ready {
        /// The runtime's id.
        id: String,
        /// Which of the Pod's sandboxes, from 0.
        attempt: u32,
        /// Addresses, the primary one first; the node's own with `hostNetwork`.
        ips: Vec<IpAddr>,
    },
    /// It could not be made; tried again after a back-off.
    Failed {
        /// The runtime's words.
        message: String,
    },
    /// Its process ended or its network is gone, and nobody asked for that.
    Lost {
        /// The runtime's id.
        id: String,
    },
    /// It was stopped because the plan said so.
    Stopped {
        /// The runtime's id.
        id: String,
    },
    /// It and its containers are gone from the runtime.
    Removed {
        /// The runtime's id.
        id: String,
    },
}

/// Image event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageFact {
    /// A pull has begun.
    Pulling,
    /// It was there.
    Present {
        /// What the runtime calls it.
        image_ref: String,
    },
    /// It was pulled.
    Pulled {
        /// What the runtime calls it.
        image_ref: String,
        /// How long the pull took.
        took: Duration,
        /// The same with the wait for its turn.
        took_with_wait: Duration,
        /// Bytes.
        size: u64,
    },
    /// It was pulled for, and did not come.
    PullFailed {
        /// The runtime's words.
        error: String,
    },
    /// It would have to be pulled, and the action was not to pull it.
    MustPull,
    /// It is not to be had, and no pull was tried.
    Failed {
        /// `ErrImageNeverPull`, `InvalidImageName` or `ImageInspectError`.
        reason: String,
        /// The runtime's or our own words.
        message: String,
    },
    /// Some of `imagePullSecrets` could not be read; the pull is tried without them.
    SecretsMissing {
        /// Their names.
        names: Vec<String>,
    },
}

/// Container event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerFact {
    /// The runtime made it.
    Created {
        /// The runtime's id, without a scheme.
        id: String,
        /// Which of this name's containers, from 0: its restart count.
        attempt: u32,
        /// What the runtime made it of.
        image: RuntimeImage,
        /// The signal that stops it, as far as it is known: the Pod's, the image's, or the runtime's (KEP-4960).
        stop_signal: Option<String>,
    },
    /// Its process runs.
    Started {
        /// The runtime's id.
        id: String,
        /// When.
        at: Timestamp,
    },
    /// It could not be created or started.
    StartFailed {
        /// How far it came.
        stage: StartStage,
        /// The runtime's or our own words.
        message: String,
    },
    /// Its process is gone, and the runtime still clears up after it: the last lines of its log may be missing. `Exited`
    /// follows; until then nothing takes its place, and nothing that it used is taken away.
    Reaped {
        /// The runtime's id.
        id: String,
        /// How.
        exit: ContainerExit,
    },
    /// Its process ended, and the runtime is done with it.
    Exited {
        /// The runtime's id.
        id: String,
        /// How.
        exit: ContainerExit,
    },
    /// The runtime does not have it any more, and nobody removed it.
    Lost {
        /// The runtime's id.
        id: String,
    },
    /// It was removed because the plan said so.
    Removed {
        /// The runtime's id.
        id: String,
    },
}

/// Stage at which a start failed (`pkg/kubelet/images`, `kuberuntime_container.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartStage {
    /// Its configuration could not be put together: `CreateContainerConfigError` (a missing ConfigMap or Secret, a bad user).
    Config,
    /// The runtime could not create it: `CreateContainerError`.
    Create,
    /// The runtime could not start it: `RunContainerError`.
    Start,
}

/// How containerd's words begin when a start failed at its last step, the one that lets the process go.
const START_OF_ITS_PROCESS: &str = "failed to start containerd task";

/// Exit of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerExit {
    /// Exit code; 128 + n after signal n.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`, ...
    pub reason: String,
    /// The termination message, or the runtime's words.
    pub message: String,
    /// When it started; `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Timestamp,
}

impl ContainerExit {
    /// Whether it ended before its process was let go. With a kubelet's death its requests end too, and runtimes give up a
    /// start that nobody waits for: then it depends on how far they were. What may have run is not begun anew behind
    /// everybody's back: that is up to its restart policy.
    #[must_use]
    pub fn never_ran(&self) -> bool {
        self.started_at.is_none() && !self.message.starts_with(START_OF_ITS_PROCESS)
    }

    /// Whether the runtime made it and could not start it: it counts as one that ran, with code 128 (`pkg/kubelet/events`).
    pub(crate) fn failed_to_start(&self) -> bool {
        self.started_at.is_none() && self.reason == "StartError"
    }
}

/// Result of one probe (`prober.go`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeOutcome {
    /// Passed.
    Success,
    /// Passed, with a word of caution (a redirect to another host).
    Warning(String),
    /// Not passed.
    Failure(String),
    /// The probe itself failed: no verdict.
    Unknown(String),
}

/// A lifecycle hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Hook {
    /// Right after the start.
    PostStart,
    /// Before the stop signal.
    PreStop,
}

/// Result of a lifecycle hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookOutcome {
    /// It ran to its end.
    Done,
    /// It failed; the words stay in the log, for they may hold secrets.
    Failed(String),
    /// The grace period ended first.
    TimedOut,
}

/// The sandboxes and containers that the runtime lists for one Pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RuntimeView {
    /// Its sandboxes.
    pub sandboxes: Vec<SandboxView>,
    /// Its containers, of all attempts.
    pub containers: Vec<ContainerView>,
}

/// A sandbox in the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxView {
    /// The runtime's id.
    pub id: String,
    /// Which of the Pod's sandboxes.
    pub attempt: u32,
    /// Whether it stands.
    pub ready: bool,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
}

/// A container in the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerView {
    /// The runtime's id.
    pub id: String,
    /// The container's name.
    pub name: String,
    /// Which of this name's containers.
    pub attempt: u32,
    /// The sandbox it lives in.
    pub sandbox: String,
    /// What the runtime made it of.
    pub image: RuntimeImage,
    /// What it does.
    pub state: ContainerViewState,
}

/// The image of a container in the runtime's own words, which is what the API shows of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeImage {
    /// Its name, as `image` shows it; empty if the runtime could not be asked.
    pub name: String,
    /// Its id or digest, as `imageID` shows it.
    pub id: String,
    /// The image of the spec that it was asked for, if the runtime kept that.
    pub spec: Option<String>,
}

/// What a container in the runtime does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerViewState {
    /// Made, not started.
    Created,
    /// Runs since.
    Running {
        /// When it started.
        started_at: Timestamp,
    },
    /// Ended.
    Exited(ContainerExit),
    /// The runtime does not know.
    Unknown,
}
