//! Probe workers: decides when a probe runs, and its result by `successThreshold` and `failureThreshold` (upstream's
//! `worker.doProbe` in `pkg/kubelet/prober/worker.go`).
//!
//! Liveness and readiness probes start after the startup probe succeeds. A container that fails its startup or liveness
//! probe is killed (`observe/probe_results.rs`); a container that fails its readiness probe is not ready.

use crate::{
    Action, Plan, Pod, ProbeKind,
    container::{Container, InstanceState, elapsed},
    hooks,
    time::{after, before},
    volatile::Volatile,
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, Probe};
use serde::{Deserialize, Serialize};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

const PROBE_KINDS: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];

/// State of the probes of one container in the runtime.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Probes {
    /// When the postStart hook was done, or the startup probe succeeded; probes do not run earlier.
    pub(crate) open_since: Option<Timestamp>,
    pub(crate) startup: ProbeWorkerState,
    pub(crate) liveness: ProbeWorkerState,
    pub(crate) readiness: ProbeWorkerState,
}

/// State of one probe worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProbeWorkerState {
    /// Number of results so far.
    #[serde(rename = "answers")]
    result_count: Volatile<u64>,
    /// When the next probe is due; `None` before the first result, when the initial delay counts.
    due: Volatile<Option<Timestamp>>,
    /// Number of consecutive equal results.
    streak: Volatile<u32>,
    /// Whether the latest results are successes. Durable, because a streak that ended must not continue after a restart.
    passing: bool,
    /// The result, once a threshold was reached (`results.Manager`).
    #[serde(rename = "verdict")]
    pub(crate) result: Option<bool>,
}

/// Delays, periods and thresholds of a probe, with upstream's defaults.
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
    /// Returns the earliest time at which this probe may kill the container: after the initial delay and
    /// `failureThreshold` periods.
    pub(crate) fn earliest_kill(&self, since: Timestamp) -> Timestamp {
        after(since, self.delay.saturating_add(self.period.saturating_mul(self.failures)))
    }
}

impl Probes {
    pub(crate) fn worker(&self, kind: ProbeKind) -> &ProbeWorkerState {
        match kind {
            ProbeKind::Startup => &self.startup,
            ProbeKind::Liveness => &self.liveness,
            ProbeKind::Readiness => &self.readiness,
        }
    }

    pub(crate) fn worker_mut(&mut self, kind: ProbeKind) -> &mut ProbeWorkerState {
        match kind {
            ProbeKind::Startup => &mut self.startup,
            ProbeKind::Liveness => &mut self.liveness,
            ProbeKind::Readiness => &mut self.readiness,
        }
    }
}

impl ProbeWorkerState {
    /// Creates the state of a probe from the result in a container status.
    pub(crate) fn restored(result: bool) -> Self {
        Self { result: Some(result), ..Self::default() }
    }

    /// Schedules the next probe. The period counts from the start of this one: its due time, but at most
    /// `timeoutSeconds` ago.
    pub(crate) fn schedule_next(&mut self, settings: &ProbeSettings, due: Timestamp, now: Timestamp) {
        let started = if elapsed(due, now) > settings.timeout { before(now, settings.timeout) } else { due };
        *self.result_count += 1;
        *self.due = Some(after(started, settings.period).max(now));
    }

    /// Counts a probe's outcome. The result changes once `successThreshold` successes or `failureThreshold` failures
    /// followed one another (`worker.doProbe`).
    pub(crate) fn record_result(&mut self, passed: bool, settings: &ProbeSettings) {
        let is_interrupted = *self.streak > 0 && self.passing != passed;
        *self.streak = if is_interrupted { 1 } else { self.streak.saturating_add(1) };
        self.passing = passed;
        if *self.streak >= if passed { settings.successes } else { settings.failures } {
            self.result = Some(passed);
        }
    }

    /// Returns the number of consecutive failures.
    pub(crate) fn failures(&self) -> u32 {
        if self.passing { 0 } else { *self.streak }
    }
}

/// Returns the container's probe of this kind.
pub(crate) fn probe(spec: &Spec, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => spec.startup_probe.as_ref(),
        ProbeKind::Liveness => spec.liveness_probe.as_ref(),
        ProbeKind::Readiness => spec.readiness_probe.as_ref(),
    }
}

/// Returns the result of this probe, once a threshold was reached.
pub(crate) fn result(container: &Container, kind: ProbeKind) -> Option<bool> {
    container.current.as_ref().and_then(|i| i.probes.worker(kind).result)
}

fn passed(container: &Container, spec: &Spec, kind: ProbeKind) -> bool {
    probe(spec, kind).is_none() || result(container, kind) == Some(true)
}

/// Returns whether the container runs, its postStart hook is done, and its startup probe succeeded (`started`).
pub(crate) fn is_started(container: &Container, spec: &Spec) -> bool {
    container.is_running() && hooks::post_start_passed(container, spec) && passed(container, spec, ProbeKind::Startup)
}

/// Returns whether the container is started and its readiness probe succeeded (`ready`).
pub(crate) fn is_ready(container: &Container, spec: &Spec) -> bool {
    is_started(container, spec) && passed(container, spec, ProbeKind::Readiness)
}

/// Returns when this probe is due; `None` if it does not run. During termination only readiness probes run.
pub(crate) fn due(pod: &Pod, spec: &Spec, kind: ProbeKind, terminating: bool) -> Option<Timestamp> {
    let container = pod.container(&spec.name);
    let instance = container.current.as_ref()?;
    let InstanceState::Running { since } = instance.state else {
        return None;
    };
    let enabled = match kind {
        ProbeKind::Startup => {
            hooks::post_start_passed(container, spec)
                && !passed(container, spec, kind)
                && !terminating
                && instance.kill.is_none()
        }
        ProbeKind::Liveness => is_started(container, spec) && !terminating && instance.kill.is_none(),
        ProbeKind::Readiness => is_started(container, spec),
    };
    let probe = probe(spec, kind).filter(|_| enabled)?;
    let settings = ProbeSettings::from(probe);
    let first = || after(since, settings.delay).max(instance.probes.open_since.unwrap_or(since));
    let due = instance.probes.worker(kind).due.unwrap_or_else(first);
    let resumed = pod.kubelet.filter(|(started, _)| since < *started);
    Some(resumed.map_or(due, |(started, random)| {
        due.max(first_probe_after_restart(started, random, pod, spec, kind, &settings))
    }))
}

/// Time after its timeout at which an exec probe has certainly ended: the runtime starts it later than the kubelet
/// requests it, and needs a moment to kill it.
const EXEC_TERMINATION_MARGIN: Duration = Duration::from_secs(1);

/// Returns when a restarted kubelet may first probe a container that was already running: after the timeout of a probe
/// that the previous kubelet may have started, and at a random offset in the first period, so that not all probes run
/// at once (`pkg/kubelet/prober`).
fn first_probe_after_restart(
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
    let is_exec = probe(spec, kind).is_some_and(|probe| probe.exec.is_some());
    let timeout = settings.timeout.saturating_add(if is_exec { EXEC_TERMINATION_MARGIN } else { Duration::ZERO });
    after(started, settings.period.mul_f64(f64::from(part) / f64::from(PARTS)).max(timeout))
}

/// Plans the probes that are due, and the wake-up for later ones.
pub(crate) fn plan(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let terminating = pod.kill_deadline(now).is_some();
    for (_, spec) in containers(pod.spec()).filter(|(kind, _)| *kind != ContainerKind::Init) {
        let container = pod.container(&spec.name);
        let Some(instance) = container.current.as_ref() else {
            continue;
        };
        for kind in PROBE_KINDS {
            match due(pod, spec, kind, terminating) {
                None => {}
                Some(due) if due > now => plan.wake_at(due),
                Some(_) => plan.actions.push(Action::Probe {
                    container: spec.name.clone(),
                    id: instance.id.clone(),
                    probe: kind,
                    attempt: *instance.probes.worker(kind).result_count,
                }),
            }
        }
    }
}
