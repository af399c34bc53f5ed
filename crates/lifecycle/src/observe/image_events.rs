//! Image events.

use super::record;
use crate::{EventKind, ImageEvent, NodePolicy, Pod, container::ImageState, status::format_duration, time::after};
use api::{feature_gates::Gate, pod::image_volumes};
use jiff::Timestamp;
use std::time::Duration;

/// An image that a container requires.
struct RequiredImage {
    /// The image reference of the spec.
    image: String,
    /// Whether it is an image volume, not the container's own image.
    volume: bool,
    /// The container that image Events are about; `None` for a volume, whose Events are about the Pod.
    about: Option<String>,
    container: String,
}

impl RequiredImage {
    /// Returns `None` if the spec has another image now.
    fn find(pod: &Pod, container: &str, image: &str) -> Option<Self> {
        let (_, spec) = pod.container_spec(container)?;
        let is_spec_image = spec.image.as_deref().unwrap_or("") == image;
        let volume = || image_volumes(pod.spec(), spec).any(|(_, source)| source.reference.as_deref() == Some(image));
        (is_spec_image || volume()).then(|| Self {
            image: image.to_owned(),
            volume: !is_spec_image,
            about: is_spec_image.then(|| container.to_owned()),
            container: container.to_owned(),
        })
    }

    fn failed(&self, reason: String, message: String, at: Timestamp, delay: Duration) -> ImageState {
        ImageState::Failed { reason, message, at, delay, volume: self.volume.then(|| self.image.clone()) }
    }
}

pub(super) fn observe(
    pod: &mut Pod,
    name: &str,
    image_name: &str,
    event: ImageEvent,
    policy: &NodePolicy,
    now: Timestamp,
) {
    let Some(required) = RequiredImage::find(pod, name, image_name) else {
        return;
    };
    let (image, about) = (&required.image, required.about.as_deref());
    let old_state = (*pod.container(name).image).clone();
    // During the backoff no pull was requested: the event is stale.
    let in_backoff = matches!(&old_state, ImageState::Failed { at, delay, .. } if after(*at, *delay) > now);
    // Only the container's own image becomes present; a volume's image only stops blocking the start.
    let resolved =
        |old_state: ImageState, image_ref| if required.volume { old_state } else { ImageState::Present { image_ref } };
    let state = match event {
        ImageEvent::SecretsMissing { names } => return secrets_missing(pod, &names),
        ImageEvent::Pulling => {
            record(pod, EventKind::Normal, "Pulling", format!("Pulling image {image:?}"), about);
            // The reason of the last failure stays visible during a retry.
            if matches!(old_state, ImageState::Failed { .. }) { old_state } else { ImageState::Pulling }
        }
        ImageEvent::Present { image_ref } => {
            let credentials_verified = policy.gates.enabled(Gate::KubeletEnsureSecretPulledImages);
            let suffix = if credentials_verified { " and can be accessed by the pod" } else { "" };
            let text = format!("Container image {image:?} already present on machine{suffix}");
            record(pod, EventKind::Normal, "Pulled", text, about);
            resolved(old_state, image_ref)
        }
        ImageEvent::Pulled { image_ref, took, took_with_wait, size } => {
            let (took, waited) = (format_duration(took), format_duration(took_with_wait));
            let text = format!(
                "Successfully pulled image {image:?} in {took} ({waited} including waiting). Image size: {size} bytes."
            );
            record(pod, EventKind::Normal, "Pulled", text, about);
            resolved(old_state, image_ref)
        }
        _ if in_backoff => return,
        ImageEvent::PullFailed { error } => pull_failed(pod, &required, &error, policy, now),
        ImageEvent::MustPull => {
            if !matches!(old_state, ImageState::Failed { .. }) {
                record_backoff(pod, &required);
            }
            wait_for_pull(pod, &required, policy, now)
        }
        ImageEvent::Failed { reason, message } => {
            let event_reason = if reason == "ErrImageNeverPull" { reason.as_str() } else { "InspectFailed" };
            record(pod, EventKind::Warning, event_reason, message.clone(), about);
            record(pod, EventKind::Warning, "Failed", format!("Error: {reason}"), Some(name));
            required.failed(reason, message, now, policy.image_backoff.initial)
        }
    };
    pod.containers.entry(name.to_owned()).or_default().image.0 = state;
}

/// Records upstream's Event about the Pod, not about a container.
fn secrets_missing(pod: &mut Pod, names: &[String]) {
    let text = format!(
        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
        names.join(", ")
    );
    record(pod, EventKind::Warning, "FailedToRetrieveImagePullSecret", text, None);
}

fn pull_failed(
    pod: &mut Pod,
    required: &RequiredImage,
    error: &str,
    policy: &NodePolicy,
    now: Timestamp,
) -> ImageState {
    let (image, about) = (&required.image, required.about.as_deref());
    let pull = pod.pull_failed(image, error, &policy.image_backoff, now);
    record(pod, EventKind::Warning, "Failed", format!("Failed to pull image {image:?}: {error}"), about);
    record(pod, EventKind::Warning, "Failed", format!("Error: {}", pull.reason), Some(&required.container));
    record_backoff(pod, required);
    wait_for_pull(pod, required, policy, now)
}

fn record_backoff(pod: &mut Pod, required: &RequiredImage) {
    let text = format!("Back-off pulling image {:?}", required.image);
    record(pod, EventKind::Normal, "BackOff", text, required.about.as_deref());
    record(pod, EventKind::Warning, "Failed", "Error: ImagePullBackOff".to_owned(), Some(&required.container));
}

/// Checks for the image during the backoff, too: it may be loaded by other means.
fn wait_for_pull(pod: &Pod, required: &RequiredImage, policy: &NodePolicy, now: Timestamp) -> ImageState {
    let Some(pull) = pod.pull_backoff(&required.image, now) else {
        return ImageState::Unknown;
    };
    let remaining = Duration::try_from(pull.retry_at().duration_since(now)).unwrap_or_default();
    let delay = remaining.min(policy.image_backoff.initial);
    required.failed(pull.reason.clone(), pull.message.clone(), now, delay)
}
