//! Images that cannot be had: what is told of them, and when there is nothing left to wait for.

use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Event, Pod};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The first pause after a pull that failed, and the longest (upstream's `MaxContainerBackOff` for images).
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Reasons of the Events that come again with each pull.
const REPEATED: [&str; 5] = ["Pulling", "Failed", "BackOff", "ErrImageNeverPull", "InspectFailed"];

/// What was told of failed pulls.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    told: BTreeSet<(String, String)>,
    /// How often a pull has failed, by Pod and message.
    failures: BTreeMap<(String, String), u32>,
}

impl Pulls {
    /// The text of an Event, unless it repeats what was told of a Pod's image.
    pub(super) fn text(&mut self, subject: &str, event: &Event) -> Option<String> {
        let (reason, message) =
            (event.reason.as_deref().unwrap_or_default(), event.message.as_deref().unwrap_or_default());
        let text = format!("[{reason}] {message}");
        if reason == "Pulled" {
            self.told.retain(|(of, _)| of != subject);
            self.failures.retain(|(of, _), _| of != subject);
        }
        if !REPEATED.contains(&reason) {
            return Some(text);
        }
        let key = (subject.to_owned(), text.clone());
        if !message.starts_with("Failed to pull image ") {
            return self.told.insert(key).then_some(text);
        }
        let failures = self.failures.entry(key).or_default();
        *failures = failures.saturating_add(1);
        let next = format!("next try in {} s", pause(*failures).as_secs());
        Some(match *failures {
            1 => format!("{text}; {next}"),
            failures => format!("the image could not be pulled {failures} times; {next}"),
        })
    }
}

/// How long the kubelet waits after so many pulls that failed.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX)).min(LONGEST_PAUSE)
}

/// Why a container of a Pod can never start in this cluster, whose images are all there: no pull is tried.
pub(super) fn never_starts(pod: &Pod) -> Option<String> {
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
    fn failed_pull_is_told_once_with_the_next_try() {
        let mut pulls = Pulls::default();
        let failed = || event("Failed", "Failed to pull image \"i\": no");
        let mut text = |event: &Event| pulls.text("pod/p", event);
        assert_eq!(text(&failed()).unwrap(), "[Failed] Failed to pull image \"i\": no; next try in 10 s");
        for (reason, message) in [("Failed", "Error: ErrImagePull"), ("BackOff", "Back-off pulling image \"i\"")] {
            assert_eq!(text(&event(reason, message)), Some(format!("[{reason}] {message}")));
            assert_eq!(text(&event(reason, message)), None);
        }
        assert_eq!(text(&failed()).unwrap(), "the image could not be pulled 2 times; next try in 20 s");
        let pulled = event("Pulled", "there");
        assert_eq!(
            (text(&pulled), text(&pulled)),
            (Some("[Pulled] there".to_owned()), Some("[Pulled] there".to_owned()))
        );
        assert!(text(&failed()).unwrap().ends_with("next try in 10 s"));
        let started = event("Started", "Container started");
        assert!(text(&started).is_some() && text(&started).is_some());
    }

    #[test]
    fn pauses_are_those_of_the_kubelet() {
        let seconds: Vec<u64> = [1, 2, 3, 6, 100, u32::MAX].map(|n| pause(n).as_secs()).to_vec();
        assert_eq!(seconds, [10, 20, 40, 300, 300, 300]);
    }

    #[test]
    fn image_that_is_never_pulled_is_not_waited_for() {
        let pod = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "m"}});
            let container =
                json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            serde_json::from_value::<Pod>(json!({"status": {"containerStatuses": [container]}})).unwrap()
        };
        for reason in ["ErrImageNeverPull", "InvalidImageName"] {
            assert_eq!(never_starts(&pod(reason)), Some(format!("{reason}: m")));
        }
        for reason in ["ErrImagePull", "ImagePullBackOff", "ContainerCreating", "CreateContainerConfigError"] {
            assert_eq!(never_starts(&pod(reason)), None);
        }
    }
}
