//! State of one container of the spec.

use crate::{
    BackoffPolicy, ContainerExit, RuntimeImage, StartFailureStage,
    container_kill::{ContainerKill, KillCause},
    hooks::Hooks,
    probe_worker::Probes,
    time::after,
    volatile::Volatile,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, ResourceRequirements};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// State of one container of the spec, across its restarts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Container {
    /// The newest container in the runtime.
    pub(crate) current: Option<Instance>,
    /// The previous container (`lastState`).
    pub(crate) last: Option<EndedContainer>,
    /// Ids of older containers, to be removed.
    pub(crate) dead: Vec<String>,
    /// The image.
    pub(crate) image: Volatile<ImageState>,
    /// Exits that arrived before the container was reported; events may be out of order.
    pub(crate) early: Vec<EndedContainer>,
    /// A start is in flight. Kept across a kubelet restart until the relist.
    pub(crate) starting: bool,
    /// The image in the spec when the last start began.
    #[serde(default)]
    pub(crate) starting_image: Option<String>,
    /// Resources of the start in flight, if they differ from the allocated ones.
    #[serde(default)]
    pub(crate) starting_with: Option<ResourceRequirements>,
    /// The failed creation or start, until one succeeds.
    pub(crate) start_failure: Option<StartFailure>,
    /// Backoff of the next restart; zero before the first restart.
    pub(crate) delay: Duration,
    /// When `delay` was last raised.
    pub(crate) delay_raised: Option<Timestamp>,
    /// Key of `delay`: a new image or new resources reset it.
    pub(crate) delay_key: String,
}

/// A container in the runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) image_id: String,
    /// Image name in the runtime, if known.
    #[serde(default)]
    pub(crate) image_name: Option<String>,
    /// Attempt of its sandbox, if known.
    pub(crate) sandbox: Option<u32>,
    pub(crate) state: InstanceState,
    #[serde(default)]
    pub(crate) probes: Probes,
    #[serde(default)]
    pub(crate) hooks: Hooks,
    /// Its process exited, but the runtime is still cleaning up.
    #[serde(default, rename = "clearing")]
    pub(crate) cleaning_up: bool,
    /// It is being killed while its Pod keeps running.
    #[serde(default)]
    pub(crate) kill: Option<ContainerKill>,
    /// Effective stop signal, if known.
    #[serde(default)]
    pub(crate) stop_signal: Option<String>,
    /// Image in the spec at its creation, if known.
    #[serde(default)]
    pub(crate) image: Option<String>,
    /// Actual resources, if they differ from the allocated ones.
    #[serde(default)]
    pub(crate) resources: Option<ResourceRequirements>,
}

impl Instance {
    /// Creates a container with fresh probe and hook state.
    pub(crate) fn new(
        id: String,
        attempt: u32,
        made_of: RuntimeImage,
        sandbox: Option<u32>,
        state: InstanceState,
    ) -> Self {
        let (probes, hooks) = (Probes::default(), Hooks::default());
        let (image_id, image_name) = (made_of.id, Some(made_of.name).filter(|name| !name.is_empty()));
        let (image, resources) = (made_of.spec, None);
        let (cleaning_up, kill, stop_signal) = (false, None, None);
        Self {
            id,
            attempt,
            image_id,
            image_name,
            sandbox,
            state,
            probes,
            hooks,
            cleaning_up,
            kill,
            stop_signal,
            image,
            resources,
        }
    }
}

/// State of a container in the runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum InstanceState {
    Created,
    Running { since: Timestamp },
    Exited(ContainerExit),
}

/// A terminated container of an earlier attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndedContainer {
    pub(crate) id: String,
    pub(crate) exit: ContainerExit,
}

/// State of the container's image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum ImageState {
    /// Not requested yet.
    #[default]
    Unknown,
    /// Pull in progress.
    Pulling,
    /// Present.
    Present { image_ref: String },
    /// Not available; checked again `delay` after `at`. `Pod::pulls` decides whether it is pulled then.
    Failed {
        reason: String,
        message: String,
        at: Timestamp,
        delay: Duration,
        /// The image, if it is an image volume, not the container's own image.
        #[serde(default)]
        volume: Option<String>,
    },
}

/// Failed creation or start of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartFailure {
    /// Attempt of the container that was created before its start failed, if any.
    pub(crate) attempt: Option<u32>,
    pub(crate) stage: StartFailureStage,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
    pub(crate) delay: Duration,
}

impl Container {
    /// Returns the exit of the newest container, unless it is being restarted with all the others.
    pub(crate) fn exit(&self) -> Option<&ContainerExit> {
        self.any_exit().filter(|_| !matches!(self.kill_cause(), Some(KillCause::RestartAll { .. })))
    }

    /// Returns the exit of the newest container.
    pub(crate) fn any_exit(&self) -> Option<&ContainerExit> {
        match self.current.as_ref().map(|i| &i.state) {
            Some(InstanceState::Exited(exit)) => Some(exit),
            _ => None,
        }
    }

    /// Returns why the newest container was killed while its Pod kept running.
    pub(crate) fn kill_cause(&self) -> Option<KillCause> {
        self.current.as_ref().and_then(|i| i.kill).map(|kill| kill.cause)
    }

    /// Returns whether the newest container is replaced, whatever its exit code.
    pub(crate) fn replaced(&self) -> bool {
        matches!(self.kill_cause(), Some(KillCause::Definition | KillCause::Resize | KillCause::RestartAll { .. }))
    }

    /// Returns whether its process is running.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.current.as_ref().map(|i| &i.state), Some(InstanceState::Running { .. }))
    }

    /// Returns whether it runs another image than that of the spec, and is not being killed.
    pub(crate) fn runs_another_image(&self, spec: &Spec) -> bool {
        let instance =
            self.current.as_ref().filter(|i| i.kill.is_none() && matches!(i.state, InstanceState::Running { .. }));
        instance.is_some_and(|i| i.image.is_some() && i.image != spec.image)
    }

    /// Returns whether its process is running or being started.
    pub(crate) fn may_run(&self) -> bool {
        self.is_running() || self.starting
    }

    /// Returns whether a container was ever started, or failed to start.
    pub(crate) fn has_run(&self) -> bool {
        self.last.is_some() || self.current.as_ref().is_some_and(|i| i.state != InstanceState::Created)
    }

    /// Returns whether the container was created but failed to start.
    fn failed_to_start(&self, instance: &Instance) -> bool {
        self.start_failure.as_ref().is_some_and(|f| f.attempt == Some(instance.attempt))
    }

    /// Returns the restart count.
    pub(crate) fn restart_count(&self) -> u32 {
        self.current.as_ref().map_or(0, |i| i.attempt)
    }

    /// Returns the attempt of the next start; a container that was created but not started yet is reused.
    pub(crate) fn next_attempt(&self) -> u32 {
        match &self.current {
            Some(i) if i.state == InstanceState::Created && !self.failed_to_start(i) => i.attempt,
            Some(i) => i.attempt + 1,
            None => 0,
        }
    }

    /// Returns when the container may be restarted after its exit (`doBackOff`): at once the first time, and after ten
    /// minutes of running. A container that was stopped with all the others has no backoff.
    pub(crate) fn restart_at(&self, spec: &Spec, policy: &BackoffPolicy) -> Option<Timestamp> {
        let exit = self.any_exit().filter(|_| self.has_backoff())?;
        Some(after(exit.finished_at, self.pending_delay(spec, policy, exit.finished_at)))
    }

    /// Returns whether its exit counts for the restart backoff.
    pub(crate) fn has_backoff(&self) -> bool {
        self.kill_cause() != Some(KillCause::RestartAll { requested: false })
    }

    /// Returns the backoff that applies to an exit at this time.
    pub(crate) fn pending_delay(&self, spec: &Spec, policy: &BackoffPolicy, finished_at: Timestamp) -> Duration {
        let expired = self.delay_raised.is_none_or(|raised| elapsed(raised, finished_at) > policy.reset_after);
        if expired || self.delay_key != delay_key(spec) { Duration::ZERO } else { self.delay }
    }

    /// Doubles the backoff for a restart now.
    pub(crate) fn raise_delay(&mut self, spec: &Spec, policy: &BackoffPolicy, finished_at: Timestamp, now: Timestamp) {
        self.delay = policy.next(self.pending_delay(spec, policy, finished_at));
        self.delay_raised = Some(now);
        self.delay_key = delay_key(spec);
    }
}

/// Returns the backoff key: upstream hashes image and resources into it.
fn delay_key(spec: &Spec) -> String {
    let resources = serde_json::to_string(&spec.resources).unwrap_or_default();
    format!("{} {resources}", spec.image.as_deref().unwrap_or(""))
}

/// Returns the time from `from` to `to`; zero if negative.
pub(crate) fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}
