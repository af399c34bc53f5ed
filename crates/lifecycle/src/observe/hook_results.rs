//! Results of lifecycle hooks (`killContainer`). Events omit the hook's output, which may contain secrets.

use super::{container_entry, kills, record};
use crate::{EventKind, Hook, HookOutcome, Pod, container_kill::KillCause, hooks::PostStart};
use jiff::Timestamp;

pub(super) fn observe(pod: &mut Pod, id: &str, hook: Hook, outcome: &HookOutcome, now: Timestamp) {
    // A result of an older container is ignored.
    let Some(name) = pod.name_of(id) else { return };
    match hook {
        Hook::PostStart => post_start(pod, &name, *outcome == HookOutcome::Done, now),
        Hook::PreStop => pre_stop(pod, &name, outcome),
    }
}

fn post_start(pod: &mut Pod, name: &str, done: bool, now: Timestamp) {
    let container = container_entry(pod, name);
    let is_running = container.is_running();
    let Some(instance) = container.current.as_mut().filter(|i| i.hooks.post_start == PostStart::Pending) else {
        return;
    };
    instance.hooks.post_start = if done { PostStart::Done } else { PostStart::Failed };
    instance.probes.open_since = done.then_some(now);
    if done {
        return;
    }
    record(pod, EventKind::Warning, "FailedPostStartHook", "PostStartHook failed".to_owned(), Some(name));
    if is_running && pod.kill_deadline(now).is_none() {
        kills::kill(pod, name, KillCause::PostStart, now);
    }
}

fn pre_stop(pod: &mut Pod, name: &str, outcome: &HookOutcome) {
    let Some(instance) = container_entry(pod, name).current.as_mut().filter(|i| !i.hooks.pre_stop_over) else { return };
    instance.hooks.pre_stop_over = true;
    // A timeout is only logged, as upstream does.
    if matches!(outcome, HookOutcome::Failed(_)) {
        record(pod, EventKind::Warning, "FailedPreStopHook", "PreStopHook failed".to_owned(), Some(name));
    }
}
