//! Decisions to kill, and what is said of them.

use super::{entry, record};
use crate::{
    EventKind, Pod, ProbeKind,
    kill::{Kill, KillCause},
    probes,
};
use jiff::Timestamp;
use std::time::Duration;

/// A container is to go while its Pod lives on. Once is enough.
pub(super) fn kill(pod: &mut Pod, name: &str, cause: KillCause, now: Timestamp) {
    let Some((_, spec)) = pod.container_spec(name) else {
        return;
    };
    let probe = match cause {
        KillCause::Probe(kind) => probes::probe(spec, kind),
        KillCause::PostStart => None,
    };
    let seconds = probe.and_then(|p| p.termination_grace_period_seconds).unwrap_or_else(|| pod.own_grace_seconds());
    let deadline = now + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let again = if pod.restarts_on_failure(spec) { ", will be restarted" } else { "" };
    let message = match cause {
        KillCause::Probe(ProbeKind::Startup) => format!("Container {name} failed startup probe{again}"),
        KillCause::Probe(_) => format!("Container {name} failed liveness probe{again}"),
        // Upstream's word, which is its reason as well.
        KillCause::PostStart => "FailedPostStartHook".to_owned(),
    };
    let Some(instance) = entry(pod, name).current.as_mut().filter(|i| i.kill.is_none()) else {
        return;
    };
    instance.kill = Some(Kill { cause, deadline });
    let id = instance.id.clone();
    record(pod, EventKind::Normal, "Killing", message, Some(name));
    pod.killing.push(id);
    pod.durable += 1;
}

/// Says once for each running container that it is being stopped with its Pod (LIFECYCLE.md 3.11).
pub(super) fn announce(pod: &mut Pod, now: Timestamp) {
    if pod.kill_deadline(now).is_none() {
        return;
    }
    let fresh: Vec<(String, String)> = pod
        .containers
        .iter()
        .filter(|(_, c)| c.alive())
        .filter_map(|(name, c)| Some((name.clone(), c.current.as_ref()?.id.clone())))
        .filter(|(_, id)| !pod.killing.contains(id))
        .collect();
    for (name, id) in fresh {
        record(pod, EventKind::Normal, "Killing", format!("Stopping container {name}"), Some(&name));
        pod.killing.push(id);
        pod.durable += 1;
    }
}
