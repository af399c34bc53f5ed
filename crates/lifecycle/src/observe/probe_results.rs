//! Outcomes of probes: records their Events and kills containers. [`crate::probe_worker`] decides the result by the
//! thresholds.

use super::{container_entry, kills, record};
use crate::{
    EventKind, Pod, ProbeKind, ProbeOutcome,
    container::InstanceState,
    container_kill::KillCause,
    probe_worker::{self, ProbeSettings},
};
use jiff::Timestamp;

/// Applies the outcome of one probe (the part of upstream's `worker.doProbe` after `prober.probe`).
pub(super) fn observe(pod: &mut Pod, id: &str, kind: ProbeKind, outcome: &ProbeOutcome, now: Timestamp) {
    let terminating = pod.kill_deadline(now).is_some();
    // A result of an older container, or without a pending probe, is ignored.
    let Some(name) = pod.name_of(id) else { return };
    let Some((_, spec)) = pod.container_spec(&name) else { return };
    let Some(probe) = probe_worker::probe(spec, kind) else { return };
    let settings = ProbeSettings::from(probe);
    let Some(due) = probe_worker::due(pod, spec, kind, terminating).filter(|due| *due <= now) else { return };

    record_probe_event(pod, &name, kind, outcome);
    let Some(instance) = container_entry(pod, &name).current.as_mut() else { return };
    let worker = instance.probes.worker_mut(kind);
    worker.schedule_next(&settings, due, now);
    let passed = match outcome {
        ProbeOutcome::Success | ProbeOutcome::Warning(_) => true,
        ProbeOutcome::Failure(_) => false,
        ProbeOutcome::Unknown(_) => return,
    };
    worker.record_result(passed, &settings);
    if kind == ProbeKind::Startup && worker.result == Some(true) {
        instance.probes.open_since = Some(now);
    }
    let failed = instance.probes.worker(kind).result == Some(false);
    let InstanceState::Running { since } = instance.state else { return };
    if failed && kind != ProbeKind::Readiness && now >= settings.earliest_kill(since) {
        kills::kill(pod, &name, KillCause::Probe(kind), now);
    }
}

fn record_probe_event(pod: &mut Pod, name: &str, kind: ProbeKind, outcome: &ProbeOutcome) {
    let (reason, text) = match outcome {
        ProbeOutcome::Success => return,
        ProbeOutcome::Warning(text) => ("ProbeWarning", format!("{kind:?} probe warning: {text}")),
        ProbeOutcome::Failure(text) => ("Unhealthy", format!("{kind:?} probe failed: {text}")),
        ProbeOutcome::Unknown(text) => {
            ("Unhealthy", format!("{kind:?} probe errored and resulted in unknown state: {text}"))
        }
    };
    record(pod, EventKind::Warning, reason, text, Some(name));
}
