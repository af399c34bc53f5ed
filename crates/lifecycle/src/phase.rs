//! Pod phase (`getPhase`; Pod Lifecycle, "Pod phase").

use crate::{
    Admission, Pod, container::Container, container_kill::KillCause, pod::PodOutcome, shutdown,
    termination::TerminationCause,
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;

/// Reason and message of a Pod that exceeded `activeDeadlineSeconds`.
pub(crate) const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
pub(crate) const DEADLINE_EXCEEDED_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// Phase with its reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) phase: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

impl Phase {
    fn plain(phase: &'static str) -> Self {
        Self { phase, reason: None, message: None }
    }

    fn failed(reason: &str, message: String) -> Self {
        Self { phase: "Failed", reason: Some(reason.to_owned()), message: Some(message) }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.phase, "Succeeded" | "Failed")
    }

    fn known(ended: &PodOutcome) -> Self {
        let phase = if ended.succeeded { "Succeeded" } else { "Failed" };
        Self { phase, reason: ended.reason.clone(), message: ended.message.clone() }
    }
}

/// Computes the phase of a Pod (`getPhase`).
pub(crate) fn phase(pod: &Pod, now: Timestamp) -> Phase {
    // A terminal phase and its reason never change. The phase in the API takes precedence.
    if let Some(written) = pod.written_phase() {
        let status =
            pod.written.as_deref().filter(|s| s.phase.as_deref() == Some(written)).or(pod.object.status.as_ref());
        let phase = if written == "Succeeded" { "Succeeded" } else { "Failed" };
        return Phase {
            phase,
            reason: status.and_then(|s| s.reason.clone()),
            message: status.and_then(|s| s.message.clone()),
        };
    }
    if let Some(ended) = &pod.ended {
        return Phase::known(ended);
    }
    // A phase becomes terminal only after all containers have stopped (KEP-3329).
    let may_run = pod.any_may_run() || pod.unseen;
    match pod.stop(now) {
        Some(stop) if !may_run => terminated_phase(pod, stop.cause),
        None if pod.finished() && !may_run => Phase::plain(outcome(pod)),
        _ => Phase::plain(if pending(pod, now) { "Pending" } else { "Running" }),
    }
}

/// Returns the phase of a terminated Pod whose containers have stopped.
fn terminated_phase(pod: &Pod, cause: TerminationCause) -> Phase {
    match cause {
        TerminationCause::Rejected => match &pod.admission {
            Some(Admission::Rejected { reason, message }) => {
                Phase::failed(reason, format!("Pod was rejected: {message}"))
            }
            _ => Phase::plain("Failed"),
        },
        TerminationCause::DeadlineExceeded => Phase::failed(DEADLINE_EXCEEDED, DEADLINE_EXCEEDED_MESSAGE.to_owned()),
        TerminationCause::Evicted => match &pod.evicted {
            // After a node shutdown the phase follows the exit codes (KEP-3329).
            Some((eviction, _)) if eviction.reason == shutdown::REASON => {
                Phase { phase: outcome(pod), ..Phase::failed(&eviction.reason, eviction.message.clone()) }
            }
            Some((eviction, _)) => Phase::failed(&eviction.reason, eviction.message.clone()),
            None => Phase::plain("Failed"),
        },
        TerminationCause::Gone | TerminationCause::Deleted | TerminationCause::Terminal => Phase::plain(outcome(pod)),
    }
}

/// Returns `Succeeded` if every app container exited with code 0, else `Failed`; a container that never ran did not
/// succeed.
fn outcome(pod: &Pod) -> &'static str {
    let mut app = containers(pod.spec()).filter(|(kind, _)| *kind == ContainerKind::App);
    if app.all(|(_, c)| pod.container(&c.name).exit().is_some_and(|e| e.code == 0)) { "Succeeded" } else { "Failed" }
}

/// Returns whether a container was not set up yet.
fn pending(pod: &Pod, now: Timestamp) -> bool {
    containers(pod.spec()).any(|(kind, c)| match kind {
        ContainerKind::Init => pod.container(&c.name).exit().is_none_or(|e| e.code != 0) && !has_app_container(pod),
        ContainerKind::Sidecar | ContainerKind::App => {
            let container = pod.container(&c.name);
            !container.has_run() || container.last.is_none() && pod.pending_post_start(c, now).is_some()
        }
        ContainerKind::Ephemeral => false,
    })
}

/// Returns whether an app container was created, other than those that are being restarted with all the others.
fn has_app_container(pod: &Pod) -> bool {
    let restarts_with_all = |c: &Container| matches!(c.kill_cause(), Some(KillCause::RestartAll { .. }));
    let was_created = |c: &Container| c.current.is_some() && !restarts_with_all(c);
    containers(pod.spec()).any(|(kind, c)| kind == ContainerKind::App && was_created(pod.container(&c.name)))
}

/// Returns whether an app container was ever created. From then on the Pod is initialized.
pub(crate) fn app_started(pod: &Pod) -> bool {
    containers(pod.spec()).any(|(kind, c)| kind == ContainerKind::App && pod.container(&c.name).current.is_some())
}
