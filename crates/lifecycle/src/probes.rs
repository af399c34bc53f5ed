//! Probes: which are carried out, when, and what their results add up to (`pkg/kubelet/prober`).
//!
//! The startup probe comes first; until it has passed, the others are not carried out. A container that fails its startup
//! or its liveness probe is killed; one that does not pass its readiness probe takes no requests.

use crate::{
    Action, Plan, Pod, ProbeKind,
    container::{Container, InstanceState, elapsed},
    hooks,
    time::{after, before},
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, Probe};
use serde::{Deserialize, Serialize};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

const ALL: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];

/// What is known about the probes of one container that the runtime made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Probes {
    /// When what they waited for was over: the postStart hook, then the startup probe.
    pub(crate) open_since: Option<Timestamp>,
    pub(crate) startup: ProbeWorkerState,
    pub(crate) liveness: ProbeWorkerState,
    pub(crate) readiness: ProbeWorkerState,
}

/// What is known about one of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProbeWorkerState {
    /// How often it was answered.
    answers: u64,
    /// When it is due again; before the first answer the initial delay says so.
    due: Option<Timestamp>,
    /// How many of the newest results say the same.
    streak: u32,
    /// What they say.
    passing: bool,
    /// What the results add up to, once a threshold was reached.
    pub(crate) verdict: Option<bool>,
}

/// A probe's numbers, with upstream's defaults.
pub(crate) struct ProbeSettings {
    delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
}

impl From<&Probe> for ProbeSettings {
    fn from(probe: &Probe) -> Self {
        let positive = |value: Option<i32>, default: u32| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        let seconds = |value, default| Duration::from_secs(u64::from(positive(value, default)));
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            successes: positive(probe.success_threshold, 1),
            failures: positive(probe.failure_threshold, 3),
        }
    }
}

impl ProbeSettings {
    /// No container is killed before it had the time that its spec gives it: the delay, and so many whole periods.
    pub(crate) fn earliest_kill(&self, since: Timestamp) -> Timestamp {
        after(since, self.delay.saturating_add(self.period.saturating_mul(self.failures)))
    }
}

impl Probes {
    pub(crate) fn track(&self, kind: ProbeKind) -> &ProbeWorkerState {
        match kind {
            ProbeKind::Startup => &self.startup,
            ProbeKind::Liveness => &self.liveness,
            ProbeKind::Readiness => &self.readiness,
        }
    }

    pub(crate) fn track_mut(&mut self, kind: ProbeKind) -> &mut ProbeWorkerState {
        match kind {
            ProbeKind::Startup => &mut self.startup,
            ProbeKind::Liveness => &mut self.liveness,
            ProbeKind::Readiness => &mut self.readiness,
        }
    }
}

impl ProbeWorkerState {
    /// One that stands where it stood when somebody wrote it down.
    pub(crate) fn restored(verdict: bool) -> Self {
        Self { verdict: Some(verdict), ..Self::default() }
    }

    /// It was answered. The period counts from when it began: when it was due, or later, but no longer ago than it may take.
    pub(crate) fn answered(&mut self, settings: &ProbeSettings, due: Timestamp, now: Timestamp) {
        let began = if elapsed(due, now) > settings.timeout { before(now, settings.timeout) } else { due };
        self.answers += 1;
        self.due = Some(after(began, settings.period).max(now));
    }

    /// Counts a result; gives whether it must not be forgotten: the verdict is another one now, or a row was broken.
    pub(crate) fn count(&mut self, passed: bool, settings: &ProbeSettings) -> bool {
        let before = self.verdict;
        let broken = self.streak > 0 && self.passing != passed;
        self.streak = if broken { 1 } else { self.streak.saturating_add(1) };
        self.passing = passed;
        if self.streak >= if passed { settings.successes } else { settings.failures } {
            self.verdict = Some(passed);
        }
        broken || self.verdict != before
    }

    /// How many times in a row it failed.
    pub(crate) fn failures(&self) -> u32 {
        if self.passing { 0 } else { self.streak }
    }
}

/// The probe of this kind, if the container has one.
pub(crate) fn probe(spec: &Spec, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => spec.startup_probe.as_ref(),
        ProbeKind::Liveness => spec.liveness_probe.as_ref(),
        ProbeKind::Readiness => spec.readiness_probe.as_ref(),
    }
}

/// What the results of this probe add up to, if enough of them are there.
pub(crate) fn verdict(container: &Container, kind: ProbeKind) -> Option<bool> {
    container.current.as_ref().and_then(|i| i.probes.track(kind).verdict)
}

fn passed(container: &Container, spec: &Spec, kind: ProbeKind) -> bool {
    probe(spec, kind).is_none() || verdict(container, kind) == Some(true)
}

/// Whether it runs, its postStart hook is done, and its startup probe has passed (`started`).
pub(crate) fn is_started(container: &Container, spec: &Spec) -> bool {
    container.is_running() && hooks::post_start_passed(container, spec) && passed(container, spec, ProbeKind::Startup)
}

/// Whether it has started and passes its readiness probe (`ready`).
pub(crate) fn is_ready(container: &Container, spec: &Spec) -> bool {
    is_started(container, spec) && passed(container, spec, ProbeKind::Readiness)
}

/// When this probe is to be carried out next; `None` when it is not. What leaves is asked for its readiness only.
pub(crate) fn due(pod: &Pod, spec: &Spec, kind: ProbeKind, leaving: bool) -> Option<Timestamp> {
    let container = pod.container(&spec.name);
    let instance = container.current.as_ref()?;
    let InstanceState::Running { since } = instance.state else {
        return None;
    };
    let wanted = match kind {
        ProbeKind::Startup => {
            hooks::post_start_passed(container, spec)
                && !passed(container, spec, kind)
                && !leaving
                && instance.kill.is_none()
        }
        ProbeKind::Liveness => is_started(container, spec) && !leaving && instance.kill.is_none(),
        ProbeKind::Readiness => is_started(container, spec),
    };
    let probe = probe(spec, kind).filter(|_| wanted)?;
    let settings = ProbeSettings::from(probe);
    let first = || after(since, settings.delay).max(instance.probes.open_since.unwrap_or(since));
    let due = instance.probes.track(kind).due.unwrap_or_else(first);
    let resumed = pod.kubelet.filter(|(started, _)| since < *started);
    Some(resumed.map_or(due, |(started, random)| due.max(resumption(started, random, pod, spec, kind, &settings))))
}

/// How long after its time is up a command is gone for certain: the runtime began it later than the kubelet asked for it,
/// and takes a moment to end it.
const COMMAND_ENDS: Duration = Duration::from_secs(1);

/// When a kubelet that was just started may carry out a probe of a container that ran before: not before one that its
/// predecessor began has had its time, and at a random moment of the first period, so that not all begin at once
/// (`pkg/kubelet/prober`).
fn resumption(
    started: Timestamp,
    random: u64,
    pod: &Pod,
    spec: &Spec,
    kind: ProbeKind,
    settings: &ProbeSettings,
) -> Timestamp {
    const PARTS: u32 = 1 << 10;
    let mut hasher = DefaultHasher::new();
    (random, pod.uid(), &spec.name, kind).hash(&mut hasher);
    let part = u32::try_from(hasher.finish() % u64::from(PARTS)).unwrap_or(0);
    let runs_a_command = probe(spec, kind).is_some_and(|probe| probe.exec.is_some());
    let over = settings.timeout.saturating_add(if runs_a_command { COMMAND_ENDS } else { Duration::ZERO });
    after(started, settings.period.mul_f64(f64::from(part) / f64::from(PARTS)).max(over))
}

/// Asks for the probes that are due, and wakes for those that will be.
pub(crate) fn plan(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let leaving = pod.kill_deadline(now).is_some();
    for (_, spec) in containers(pod.spec()).filter(|(kind, _)| *kind != ContainerKind::Init) {
        let container = pod.container(&spec.name);
        let Some(instance) = container.current.as_ref() else {
            continue;
        };
        for kind in ALL {
            match due(pod, spec, kind, leaving) {
                None => {}
                Some(due) if due > now => plan.wake_at(due),
                Some(_) => plan.actions.push(Action::Probe {
                    container: spec.name.clone(),
                    id: instance.id.clone(),
                    probe: kind,
                    attempt: instance.probes.track(kind).answers,
                }),
            }
        }
    }
}
