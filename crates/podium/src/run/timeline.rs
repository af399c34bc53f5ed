//! Timeline of Pods: describes each state transition of a Pod and its containers in one line.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use std::collections::{BTreeMap, BTreeSet};

/// One line of the timeline, without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Object, and container if there is one: `pod/web`, `pod/web app`.
    pub(crate) subject: String,
    /// Description of the transition.
    pub(crate) text: String,
    /// Severity, which determines the colour.
    pub(crate) severity: Severity,
}

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Progress.
    Info,
    /// Success.
    Success,
    /// Failure or warning.
    Failure,
}

/// Records the last reported state of each Pod and container, so that each transition is reported once.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    reported: BTreeMap<String, String>,
    /// States already reported for failed image pulls: each failed pull repeats the same states.
    failed_pulls: BTreeMap<String, BTreeSet<String>>,
}

impl Timeline {
    /// Returns the lines for the transitions since the last version of a Pod.
    pub(crate) fn observe(&mut self, pod: &Pod) -> Vec<Line> {
        let name = pod_name(pod);
        let mut lines = Vec::new();
        self.report(&mut lines, format!("pod/{name}"), pod_state(pod));
        let status = pod.status.as_ref();
        let lists = [
            status.and_then(|s| s.init_container_statuses.as_ref()),
            status.and_then(|s| s.container_statuses.as_ref()),
            status.and_then(|s| s.ephemeral_container_statuses.as_ref()),
        ];
        for container in lists.into_iter().flatten().flatten() {
            if let Some(state) = container_state(container) {
                self.report(&mut lines, format!("pod/{name} {}", container.name), state);
            }
        }
        lines
    }

    /// Returns the line for a deleted Pod, and forgets the Pod.
    pub(crate) fn removed(&mut self, pod: &Pod) -> Line {
        let subject = format!("pod/{}", pod_name(pod));
        let is_other_subject = |s: &String| *s != subject && !s.starts_with(&format!("{subject} "));
        self.reported.retain(|s, _| is_other_subject(s));
        self.failed_pulls.retain(|s, _| is_other_subject(s));
        Line { subject, text: "deleted".to_owned(), severity: Severity::Info }
    }

    fn report(&mut self, lines: &mut Vec<Line>, subject: String, (text, severity): (String, Severity)) {
        if self.reported.get(&subject) != Some(&text) {
            self.reported.insert(subject.clone(), text.clone());
            if !is_failed_pull(&text) {
                self.failed_pulls.remove(&subject);
            } else if !self.failed_pulls.entry(subject.clone()).or_default().insert(text.clone()) {
                return;
            }
            lines.push(Line { subject, text, severity });
        }
    }
}

fn is_failed_pull(text: &str) -> bool {
    ["waiting, ErrImagePull", "waiting, ImagePullBackOff"].iter().any(|state| text.starts_with(state))
}

fn pod_name(pod: &Pod) -> String {
    display_name(pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref())
}

/// Returns the name, prefixed with the namespace unless that is `default`.
pub(crate) fn display_name(namespace: Option<&str>, name: Option<&str>) -> String {
    let name = name.unwrap_or_default();
    match namespace {
        None | Some("default") => name.to_owned(),
        Some(namespace) => format!("{namespace}/{name}"),
    }
}

fn pod_state(pod: &Pod) -> (String, Severity) {
    let phase = api::pod::phase(pod);
    let status = pod.status.as_ref();
    let detail = |s: &str| {
        let reason = status.and_then(|x| x.reason.as_deref()).unwrap_or("");
        if reason.is_empty() { s.to_owned() } else { format!("{s}: {reason}") }
    };
    match phase {
        "Succeeded" => (detail("Succeeded"), Severity::Success),
        "Failed" => (detail("Failed"), Severity::Failure),
        _ if pod.metadata.deletion_timestamp.is_some() => ("Terminating".to_owned(), Severity::Info),
        "Running" if api::pod::condition_is_true(pod, "Ready") => ("Running, Ready".to_owned(), Severity::Success),
        "Running" => ("Running".to_owned(), Severity::Info),
        other => match (api::pod::node_name(pod), unscheduled_reason(pod)) {
            (Some(_), _) => (format!("{other}, scheduled"), Severity::Info),
            (None, Some(reason)) => (format!("{other}: {reason}"), Severity::Failure),
            (None, None) => (other.to_owned(), Severity::Info),
        },
    }
}

fn unscheduled_reason(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    let (reason, message) = (scheduled.reason.as_deref()?, scheduled.message.as_deref().unwrap_or(""));
    Some(if message.is_empty() { reason.to_owned() } else { format!("{reason}, {message}") })
}

fn container_state(container: &ContainerStatus) -> Option<(String, Severity)> {
    let restarts = match container.restart_count {
        0 => String::new(),
        n => format!(" (restart {n})"),
    };
    match container.state.as_ref()? {
        ContainerState { running: Some(_), .. } => {
            let ready = if container.ready { ", ready" } else { "" };
            Some((format!("running{ready}{restarts}"), Severity::Success))
        }
        ContainerState { terminated: Some(t), .. } => {
            let reason = t.reason.as_deref().unwrap_or("Terminated");
            let severity = if t.exit_code == 0 { Severity::Success } else { Severity::Failure };
            Some((format!("exited with code {}, {reason}{restarts}", t.exit_code), severity))
        }
        ContainerState { waiting: Some(w), .. } => {
            let reason = w.reason.as_deref().unwrap_or("Waiting");
            let usual = matches!(reason, "ContainerCreating" | "PodInitializing");
            let message = w.message.as_deref().filter(|_| !usual).map_or_else(String::new, |m| format!(": {m}"));
            Some((
                format!("waiting, {reason}{message}{restarts}"),
                if usual { Severity::Info } else { Severity::Failure },
            ))
        }
        ContainerState { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [], "nodeName": "n"}, "status": status}))
            .unwrap()
    }

    #[track_caller]
    fn check(versions: &[Value], expected: &[&str]) {
        let mut timeline = Timeline::default();
        let lines: Vec<String> = versions
            .iter()
            .flat_map(|status| timeline.observe(&pod(status.clone())))
            .map(|l| format!("{} {}", l.subject, l.text))
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn each_pod_transition_is_reported_once() {
        let waiting = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "restartCount": 0, "ready": false, "image": "", "imageID": "", "state": {"waiting": {"reason": "ContainerCreating"}}}]});
        let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "c", "restartCount": 0, "ready": true, "image": "", "imageID": "", "state": {"running": {}}}]});
        let done = json!({"phase": "Failed", "containerStatuses": [{"name": "c", "restartCount": 2, "ready": false, "image": "", "imageID": "", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]});
        check(
            &[json!({"phase": "Pending"}), waiting.clone(), waiting, running.clone(), running, done],
            &[
                "pod/p Pending, scheduled",
                "pod/p c waiting, ContainerCreating",
                "pod/p Running, Ready",
                "pod/p c running, ready",
                "pod/p Failed",
                "pod/p c exited with code 3, Error (restart 2)",
            ],
        );
    }

    #[test]
    fn repeated_pull_failure_is_reported_once() {
        let waiting = |reason: &str| json!({"phase": "Pending", "containerStatuses": [{"name": "c", "restartCount": 0, "ready": false, "image": "", "imageID": "", "state": {"waiting": {"reason": reason, "message": "m"}}}]});
        let (failed, backing_off) = (waiting("ErrImagePull"), waiting("ImagePullBackOff"));
        let (first, second) = ("pod/p c waiting, ErrImagePull: m", "pod/p c waiting, ImagePullBackOff: m");
        check(
            &[
                failed.clone(),
                backing_off.clone(),
                failed.clone(),
                backing_off.clone(),
                waiting("ContainerCreating"),
                failed,
            ],
            &["pod/p Pending, scheduled", first, second, "pod/p c waiting, ContainerCreating", first],
        );
    }

    #[test]
    fn waiting_container_is_reported_with_its_message() {
        let status = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "restartCount": 0, "ready": false, "image": "", "imageID": "", "state": {"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}}]});
        check(&[status], &["pod/p Pending, scheduled", "pod/p c waiting, ErrImageNeverPull: not present"]);
    }
}
