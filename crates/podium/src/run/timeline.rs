//! The timeline: what changed between two versions of a Pod, in lines for people.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use std::collections::{BTreeMap, BTreeSet};

/// One line of the timeline, without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// What it is about: `pod/web`, `pod/web app`.
    pub(crate) subject: String,
    /// What happened.
    pub(crate) text: String,
    /// How it is to be taken.
    pub(crate) mood: Mood,
}

/// How a line is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// On its way.
    Neutral,
    /// As hoped.
    Good,
    /// Not as hoped.
    Bad,
}

/// Remembers what was last said about each Pod, so that each transition is told once.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    told: BTreeMap<String, String>,
    /// What was told of images that cannot be pulled, in turn: each failed pull shows the same states again.
    pulls: BTreeMap<String, BTreeSet<String>>,
}

impl Timeline {
    /// The lines that this version of a Pod adds.
    pub(crate) fn observe(&mut self, pod: &Pod) -> Vec<Line> {
        let name = pod_name(pod);
        let mut lines = Vec::new();
        self.tell(&mut lines, format!("pod/{name}"), pod_state(pod));
        let status = pod.status.as_ref();
        let lists = [
            status.and_then(|s| s.init_container_statuses.as_ref()),
            status.and_then(|s| s.container_statuses.as_ref()),
            status.and_then(|s| s.ephemeral_container_statuses.as_ref()),
        ];
        for container in lists.into_iter().flatten().flatten() {
            if let Some(state) = container_state(container) {
                self.tell(&mut lines, format!("pod/{name} {}", container.name), state);
            }
        }
        lines
    }

    /// The line that says a Pod is gone.
    pub(crate) fn removed(&mut self, pod: &Pod) -> Line {
        let subject = format!("pod/{}", pod_name(pod));
        let is_another = |s: &String| *s != subject && !s.starts_with(&format!("{subject} "));
        self.told.retain(|s, _| is_another(s));
        self.pulls.retain(|s, _| is_another(s));
        Line { subject, text: "gone".to_owned(), mood: Mood::Neutral }
    }

    fn tell(&mut self, lines: &mut Vec<Line>, subject: String, (text, mood): (String, Mood)) {
        if self.told.get(&subject) != Some(&text) {
            self.told.insert(subject.clone(), text.clone());
            if !is_failed_pull(&text) {
                self.pulls.remove(&subject);
            } else if !self.pulls.entry(subject.clone()).or_default().insert(text.clone()) {
                return;
            }
            lines.push(Line { subject, text, mood });
        }
    }
}

fn is_failed_pull(text: &str) -> bool {
    ["waiting, ErrImagePull", "waiting, ImagePullBackOff"].iter().any(|state| text.starts_with(state))
}

fn pod_name(pod: &Pod) -> String {
    display_name(pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref())
}

/// The name, with its namespace unless that is `default`.
pub(crate) fn display_name(namespace: Option<&str>, name: Option<&str>) -> String {
    let name = name.unwrap_or_default();
    match namespace {
        None | Some("default") => name.to_owned(),
        Some(namespace) => format!("{namespace}/{name}"),
    }
}

fn pod_state(pod: &Pod) -> (String, Mood) {
    let phase = api::pod::phase(pod);
    let status = pod.status.as_ref();
    let detail = |s: &str| {
        let reason = status.and_then(|x| x.reason.as_deref()).unwrap_or("");
        if reason.is_empty() { s.to_owned() } else { format!("{s}: {reason}") }
    };
    match phase {
        "Succeeded" => (detail("Succeeded"), Mood::Good),
        "Failed" => (detail("Failed"), Mood::Bad),
        _ if pod.metadata.deletion_timestamp.is_some() => ("Terminating".to_owned(), Mood::Neutral),
        "Running" if api::pod::condition_is_true(pod, "Ready") => ("Running, Ready".to_owned(), Mood::Good),
        "Running" => ("Running".to_owned(), Mood::Neutral),
        other => match (api::pod::node_name(pod), unscheduled_reason(pod)) {
            (Some(_), _) => (format!("{other}, scheduled"), Mood::Neutral),
            (None, Some(reason)) => (format!("{other}: {reason}"), Mood::Bad),
            (None, None) => (other.to_owned(), Mood::Neutral),
        },
    }
}

fn unscheduled_reason(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    let (reason, message) = (scheduled.reason.as_deref()?, scheduled.message.as_deref().unwrap_or(""));
    Some(if message.is_empty() { reason.to_owned() } else { format!("{reason}, {message}") })
}

fn container_state(container: &ContainerStatus) -> Option<(String, Mood)> {
    let restarts = match container.restart_count {
        0 => String::new(),
        n => format!(" (restart {n})"),
    };
    match container.state.as_ref()? {
        ContainerState { running: Some(_), .. } => {
            let ready = if container.ready { ", ready" } else { "" };
            Some((format!("running{ready}{restarts}"), Mood::Good))
        }
        ContainerState { terminated: Some(t), .. } => {
            let reason = t.reason.as_deref().unwrap_or("Terminated");
            let mood = if t.exit_code == 0 { Mood::Good } else { Mood::Bad };
            Some((format!("exited with code {}, {reason}{restarts}", t.exit_code), mood))
        }
        ContainerState { waiting: Some(w), .. } => {
            let reason = w.reason.as_deref().unwrap_or("Waiting");
            let usual = matches!(reason, "ContainerCreating" | "PodInitializing");
            let message = w.message.as_deref().filter(|_| !usual).map_or_else(String::new, |m| format!(": {m}"));
            Some((format!("waiting, {reason}{message}{restarts}"), if usual { Mood::Neutral } else { Mood::Bad }))
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
    fn each_transition_is_told_once() {
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
    fn pull_that_fails_again_and_again_is_told_once() {
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
    fn trouble_comes_with_its_message() {
        let status = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "restartCount": 0, "ready": false, "image": "", "imageID": "", "state": {"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}}]});
        check(&[status], &["pod/p Pending, scheduled", "pod/p c waiting, ErrImageNeverPull: not present"]);
    }
}
