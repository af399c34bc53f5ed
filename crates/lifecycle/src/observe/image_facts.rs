//! Facts about images.

use super::record;
use crate::{EventKind, ImageFact, NodePolicy, Pod, container::Image, status::human};
use api::feature_gates::Gate;
use jiff::Timestamp;
use std::time::Duration;

pub(super) fn observe(pod: &mut Pod, name: &str, of: &str, fact: ImageFact, policy: &NodePolicy, now: Timestamp) {
    let Some(image) = pod.container_spec(name).map(|(_, c)| c.image.clone().unwrap_or_default()) else {
        return;
    };
    // The spec names another one meanwhile.
    if image != of {
        return;
    }
    let before = pod.container(name).image.clone();
    // Nobody asked since the last failure: this one is old.
    let waits = matches!(&before, Image::Failed { at, delay, .. } if *at + *delay > now);
    let state = match fact {
        ImageFact::SecretsMissing { names } => return secrets_missing(pod, &names),
        ImageFact::Pulling => {
            record(pod, EventKind::Normal, "Pulling", format!("Pulling image {image:?}"), Some(name));
            // While a failed pull is tried again, its reason stays visible.
            if matches!(before, Image::Failed { .. }) { before } else { Image::Pulling }
        }
        ImageFact::Present { image_ref } => {
            let checked = policy.gates.enabled(Gate::KubeletEnsureSecretPulledImages);
            let and = if checked { " and can be accessed by the pod" } else { "" };
            let text = format!("Container image {image:?} already present on machine{and}");
            record(pod, EventKind::Normal, "Pulled", text, Some(name));
            Image::Present { image_ref }
        }
        ImageFact::Pulled { image_ref, took, took_with_wait, size } => {
            let (took, waited) = (human(took), human(took_with_wait));
            let text = format!(
                "Successfully pulled image {image:?} in {took} ({waited} including waiting). Image size: {size} bytes."
            );
            record(pod, EventKind::Normal, "Pulled", text, Some(name));
            Image::Present { image_ref }
        }
        _ if waits => return,
        ImageFact::PullFailed { error } => pull_failed(pod, name, &image, &error, policy, now),
        ImageFact::MustPull => {
            if !matches!(before, Image::Failed { .. }) {
                backing_off(pod, name, &image);
            }
            wait_for_pull(pod, &image, policy, now)
        }
        ImageFact::Failed { reason, message } => {
            let told = if reason == "ErrImageNeverPull" { reason.as_str() } else { "InspectFailed" };
            record(pod, EventKind::Warning, told, message.clone(), Some(name));
            record(pod, EventKind::Warning, "Failed", format!("Error: {reason}"), Some(name));
            Image::Failed { reason, message, at: now, delay: policy.image_backoff.initial }
        }
    };
    pod.containers.entry(name.to_owned()).or_default().image = state;
}

/// Told in upstream's words, and of the Pod, not of a container.
fn secrets_missing(pod: &mut Pod, names: &[String]) {
    let text = format!(
        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
        names.join(", ")
    );
    record(pod, EventKind::Warning, "FailedToRetrieveImagePullSecret", text, None);
}

fn pull_failed(pod: &mut Pod, name: &str, image: &str, error: &str, policy: &NodePolicy, now: Timestamp) -> Image {
    let pull = pod.pull_failed(image, error, &policy.image_backoff, now);
    record(pod, EventKind::Warning, "Failed", format!("Failed to pull image {image:?}: {error}"), Some(name));
    record(pod, EventKind::Warning, "Failed", format!("Error: {}", pull.reason), Some(name));
    backing_off(pod, name, image);
    wait_for_pull(pod, image, policy, now)
}

fn backing_off(pod: &mut Pod, name: &str, image: &str) {
    record(pod, EventKind::Normal, "BackOff", format!("Back-off pulling image {image:?}"), Some(name));
    record(pod, EventKind::Warning, "Failed", "Error: ImagePullBackOff".to_owned(), Some(name));
}

/// Until the next pull one looks for the image now and then: somebody may bring it.
fn wait_for_pull(pod: &Pod, image: &str, policy: &NodePolicy, now: Timestamp) -> Image {
    let Some(pull) = pod.pull_backoff(image, now) else {
        return Image::Unknown;
    };
    let left = Duration::try_from(pull.retry_at().duration_since(now)).unwrap_or_default();
    let delay = left.min(policy.image_backoff.initial);
    Image::Failed { reason: pull.reason.clone(), message: pull.message.clone(), at: now, delay }
}
