//! Failed image pulls: deduplicates their Events, and detects Pods that can never start.

use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Event, Pod};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Initial and maximum backoff after a failed image pull (the kubelet's `imageBackOff`).
const INITIAL_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Reasons of the Events that the kubelet repeats with each pull.
const REPEATED_REASONS: [&str; 5] = ["Pulling", "Failed", "BackOff", "ErrImageNeverPull", "InspectFailed"];

/// Deduplicates the Events of image pulls.
#[derive(Debug, Default)]
pub(super) struct ImagePullEvents {
    reported: BTreeSet<(String, String)>,
    /// Number of failed pulls, by Pod and message.
    failures: BTreeMap<(String, String), u32>,
}

impl ImagePullEvents {
    /// Returns the text of an Event, or `None` if it repeats an earlier Event about an image of the Pod.
    pub(super) fn text(&mut self, subject: &str, event: &Event) -> Option<String> {
        let (reason, message) =
            (event.reason.as_deref().unwrap_or_default(), event.message.as_deref().unwrap_or_default());
        let text = format!("[{reason}] {message}");
        if reason == "Pulled" {
            self.reported.retain(|(pod, _)| pod != subject);
            self.failures.retain(|(pod, _), _| pod != subject);
        }
        if !REPEATED_REASONS.contains(&reason) {
            return Some(text);
        }
        let key = (subject.to_owned(), text.clone());
        if !message.starts_with("Failed to pull image ") {
            return self.reported.insert(key).then_some(text);
        }
        let failures = self.failures.entry(key).or_default();
        *failures = failures.saturating_add(1);
        let next = format!("next attempt in {} s", backoff(*failures).as_secs());
        Some(match *failures {
            1 => format!("{text}; {next}"),
            failures => format!("failed to pull the image {failures} times; {next}"),
        })
    }
}

/// Returns the kubelet's backoff after this many failed pulls.
fn backoff(failures: u32) -> Duration {
    INITIAL_BACKOFF.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX)).min(MAX_BACKOFF)
}

/// Returns why a container of a Pod can never start. Its image is not pulled, and no image is added during a run.
pub(super) fn permanent_image_failure(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let waiting = |container: &ContainerStatus| container.state.as_ref()?.waiting.clone();
    lists.into_iter().flatten().flatten().filter_map(waiting).find_map(|waiting| {
        let ContainerStateWaiting { reason, message } = waiting;
        let reason = reason.filter(|reason| matches!(reason.as_str(), "ErrImageNeverPull" | "InvalidImageName"))?;
        Some(message.map_or(reason.clone(), |message| format!("{reason}: {message}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(reason: &str, message: &str) -> Event {
        Event { reason: Some(reason.to_owned()), message: Some(message.to_owned()), ..Event::default() }
    }

    #[test]
    fn failed_pull_is_reported_once_with_the_next_attempt() {
        let mut pull_events = ImagePullEvents::default();
        let failed = || event("Failed", "Failed to pull image \"i\": no");
        let mut text = |event: &Event| pull_events.text("pod/p", event);
        assert_eq!(text(&failed()).unwrap(), "[Failed] Failed to pull image \"i\": no; next attempt in 10 s");
        for (reason, message) in [("Failed", "Error: ErrImagePull"), ("BackOff", "Back-off pulling image \"i\"")] {
            assert_eq!(text(&event(reason, message)), Some(format!("[{reason}] {message}")));
            assert_eq!(text(&event(reason, message)), None);
        }
        assert_eq!(text(&failed()).unwrap(), "failed to pull the image 2 times; next attempt in 20 s");
        let pulled = event("Pulled", "there");
        assert_eq!(
            (text(&pulled), text(&pulled)),
            (Some("[Pulled] there".to_owned()), Some("[Pulled] there".to_owned()))
        );
        assert!(text(&failed()).unwrap().ends_with("next attempt in 10 s"));
        let started = event("Started", "Container started");
        assert!(text(&started).is_some() && text(&started).is_some());
    }

    #[test]
    fn pull_backoff_matches_the_kubelet() {
        let seconds: Vec<u64> = [1, 2, 3, 6, 100, u32::MAX].map(|n| backoff(n).as_secs()).to_vec();
        assert_eq!(seconds, [10, 20, 40, 300, 300, 300]);
    }

    #[test]
    fn image_that_is_never_pulled_is_a_permanent_failure() {
        let pod = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "m"}});
            let container =
                json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            serde_json::from_value::<Pod>(json!({"status": {"containerStatuses": [container]}})).unwrap()
        };
        for reason in ["ErrImageNeverPull", "InvalidImageName"] {
            assert_eq!(permanent_image_failure(&pod(reason)), Some(format!("{reason}: m")));
        }
        for reason in ["ErrImagePull", "ImagePullBackOff", "ContainerCreating", "CreateContainerConfigError"] {
            assert_eq!(permanent_image_failure(&pod(reason)), None);
        }
    }
}
