//! Results of probes (`pkg/kubelet/prober`).

use super::{entry, kills, record};
use crate::{
    EventKind, Pod, ProbeKind, ProbeOutcome,
    container::InstanceState,
    container_kill::KillCause,
    probes::{self, ProbeSettings},
};
use jiff::Timestamp;

pub(super) fn observe(pod: &mut Pod, id: &str, kind: ProbeKind, outcome: &ProbeOutcome, now: Timestamp) {
    let leaving = pod.kill_deadline(now).is_some();
    // One of an older container is history, and so is one that nobody asked for since the last.
    let Some(name) = pod.name_of(id) else { return };
    let Some((_, spec)) = pod.container_spec(&name) else { return };
    let Some(probe) = probes::probe(spec, kind) else { return };
    let settings = ProbeSettings::from(probe);
    let Some(due) = probes::due(pod, spec, kind, leaving).filter(|due| *due <= now) else { return };

    record_probe_event(pod, &name, kind, outcome);
    let Some(instance) = entry(pod, &name).current.as_mut() else { return };
    let track = instance.probes.track_mut(kind);
    track.answered(&settings, due, now);
    let passed = match outcome {
        ProbeOutcome::Success | ProbeOutcome::Warning(_) => true,
        ProbeOutcome::Failure(_) => false,
        ProbeOutcome::Unknown(_) => return,
    };
    let news = track.count(passed, &settings);
    if kind == ProbeKind::Startup && track.verdict == Some(true) {
        instance.probes.open_since = Some(now);
    }
    let failed = instance.probes.track(kind).verdict == Some(false);
    let InstanceState::Running { since } = instance.state else { return };
    pod.durable += u64::from(news);
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
