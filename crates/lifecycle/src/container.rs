//! State of one container of the spec.

use crate::{
    BackoffPolicy, ContainerExit, RuntimeImage, StartStage,
    container_kill::{ContainerKill, KillCause},
    hooks::Hooks,
    probes::Probes,
    time::after,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, ResourceRequirements};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One container of the spec, over all of its restarts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Container {
    /// The newest one that the runtime made.
    pub(crate) current: Option<Instance>,
    /// How the one before ended (`lastState`).
    pub(crate) last: Option<EndedContainer>,
    /// Older ones that the runtime still has, to be removed.
    pub(crate) dead: Vec<String>,
    /// The image.
    pub(crate) image: ImageState,
    /// Ends of containers that nobody has told of yet: facts may come out of order.
    pub(crate) early: Vec<EndedContainer>,
    /// A start is on its way, and was not answered yet. Kept over a restart of the kubelet, until the runtime was listed.
    pub(crate) starting: bool,
    /// The image of the spec when a start was begun last.
    #[serde(default)]
    pub(crate) starting_image: Option<String>,
    /// The resources with which it is being started, where they are no longer those that are allocated.
    #[serde(default)]
    pub(crate) starting_with: Option<ResourceRequirements>,
    /// Why it could not be created or started, until it could.
    pub(crate) start_failure: Option<StartFailure>,
    /// How long the next restart waits after an exit; zero before the first restart.
    pub(crate) delay: Duration,
    /// When `delay` was last raised.
    pub(crate) delay_raised: Option<Timestamp>,
    /// What `delay` belongs to: a new image or new resources start anew.
    pub(crate) delay_key: String,
}

/// A container that the runtime made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) image_id: String,
    /// The runtime's name of its image, if that is known.
    #[serde(default)]
    pub(crate) image_name: Option<String>,
    /// The attempt of the sandbox that it was made in, if that is known.
    pub(crate) sandbox: Option<u32>,
    pub(crate) state: InstanceState,
    #[serde(default)]
    pub(crate) probes: Probes,
    #[serde(default)]
    pub(crate) hooks: Hooks,
    /// Its process is gone, and the runtime still clears up after it.
    #[serde(default)]
    pub(crate) clearing: bool,
    /// It is being killed while its Pod keeps running.
    #[serde(default)]
    pub(crate) kill: Option<ContainerKill>,
    /// The signal that stops it, if that is known.
    #[serde(default)]
    pub(crate) stop_signal: Option<String>,
    /// The image of the spec that it was made of, if that is known.
    #[serde(default)]
    pub(crate) image: Option<String>,
    /// The resources that it has, where they are not those that are allocated.
    #[serde(default)]
    pub(crate) resources: Option<ResourceRequirements>,
}

impl Instance {
    /// One of which no more is known: probes and hooks begin anew with each.
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
        let (clearing, kill, stop_signal) = (false, None, None);
        Self {
            id,
            attempt,
            image_id,
            image_name,
            sandbox,
            state,
            probes,
            hooks,
            clearing,
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
    /// On its way.
    Pulling,
    /// There.
    Present { image_ref: String },
    /// Not available; checked again `delay` after `at`. Whether it is pulled then is up to `Pod::pulls`.
    Failed {
        reason: String,
        message: String,
        at: Timestamp,
        delay: Duration,
        /// Which image it is, if it is not the container's own but that of a volume.
        #[serde(default)]
        volume: Option<String>,
    },
}

/// Failed creation or start of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartFailure {
    /// Which one was made before its start failed, if one was.
    pub(crate) attempt: Option<u32>,
    pub(crate) stage: StartStage,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
    pub(crate) delay: Duration,
}

impl Container {
    /// How the newest one ended, if it has, and if that still counts: not when all containers are restarted.
    pub(crate) fn exit(&self) -> Option<&ContainerExit> {
        self.any_exit().filter(|_| !matches!(self.kill_cause(), Some(KillCause::RestartAll { .. })))
    }

    /// How the newest one ended, if it has.
    pub(crate) fn any_exit(&self) -> Option<&ContainerExit> {
        match self.current.as_ref().map(|i| &i.state) {
            Some(InstanceState::Exited(exit)) => Some(exit),
            _ => None,
        }
    }

    /// Why the newest one was killed while its Pod lives on, if it was.
    pub(crate) fn kill_cause(&self) -> Option<KillCause> {
        self.current.as_ref().and_then(|i| i.kill).map(|kill| kill.cause)
    }

    /// Whether another takes the place of the newest one, whatever came of it.
    pub(crate) fn replaced(&self) -> bool {
        matches!(self.kill_cause(), Some(KillCause::Definition | KillCause::Resize | KillCause::RestartAll { .. }))
    }

    /// Whether its process runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.current.as_ref().map(|i| &i.state), Some(InstanceState::Running { .. }))
    }

    /// Whether it runs, of another image than the spec has now, and nobody is stopping it.
    pub(crate) fn runs_another_image(&self, spec: &Spec) -> bool {
        let instance =
            self.current.as_ref().filter(|i| i.kill.is_none() && matches!(i.state, InstanceState::Running { .. }));
        instance.is_some_and(|i| i.image.is_some() && i.image != spec.image)
    }

    /// Whether its process runs, or may at any moment.
    pub(crate) fn may_run(&self) -> bool {
        self.is_running() || self.starting
    }

    /// A start was answered; gives whether one was on its way.
    pub(crate) fn take_starting(&mut self) -> bool {
        std::mem::take(&mut self.starting)
    }

    /// Whether one of its processes ever ran, or tried to.
    pub(crate) fn has_run(&self) -> bool {
        self.last.is_some() || self.current.as_ref().is_some_and(|i| i.state != InstanceState::Created)
    }

    /// Whether this one was made, and could not be started.
    fn failed_to_start(&self, instance: &Instance) -> bool {
        self.start_failure.as_ref().is_some_and(|f| f.attempt == Some(instance.attempt))
    }

    /// Restarts so far.
    pub(crate) fn restart_count(&self) -> u32 {
        self.current.as_ref().map_or(0, |i| i.attempt)
    }

    /// The attempt that a start now would be: one that was made and not tried yet is used.
    pub(crate) fn next_attempt(&self) -> u32 {
        match &self.current {
            Some(i) if i.state == InstanceState::Created && !self.failed_to_start(i) => i.attempt,
            Some(i) => i.attempt + 1,
            None => 0,
        }
    }

    /// When it may be started again after its exit (`doBackOff`): at once the first time, and after ten good minutes.
    /// What was stopped because another container ended waits for nothing.
    pub(crate) fn restart_at(&self, spec: &Spec, policy: &BackoffPolicy) -> Option<Timestamp> {
        let exit = self.any_exit().filter(|_| self.has_backoff())?;
        Some(after(exit.finished_at, self.pending_delay(spec, policy, exit.finished_at)))
    }

    /// Whether its exit counts for the restart backoff.
    pub(crate) fn has_backoff(&self) -> bool {
        self.kill_cause() != Some(KillCause::RestartAll { asked: false })
    }

    /// The delay that applies to an exit at this moment.
    pub(crate) fn pending_delay(&self, spec: &Spec, policy: &BackoffPolicy, finished_at: Timestamp) -> Duration {
        let expired = self.delay_raised.is_none_or(|raised| elapsed(raised, finished_at) > policy.reset_after);
        if expired || self.delay_key != delay_key(spec) { Duration::ZERO } else { self.delay }
    }

    /// Raises the delay because a restart happens now.
    pub(crate) fn raise_delay(&mut self, spec: &Spec, policy: &BackoffPolicy, finished_at: Timestamp, now: Timestamp) {
        self.delay = policy.next(self.pending_delay(spec, policy, finished_at));
        self.delay_raised = Some(now);
        self.delay_key = delay_key(spec);
    }
}

/// What a delay belongs to: upstream hashes image and resources into its key.
fn delay_key(spec: &Spec) -> String {
    let resources = serde_json::to_string(&spec.resources).unwrap_or_default();
    format!("{} {resources}", spec.image.as_deref().unwrap_or(""))
}

/// Time from `from` to `to`; zero when that is negative.
pub(crate) fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}
