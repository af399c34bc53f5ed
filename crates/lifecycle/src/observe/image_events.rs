//! Facts about images.

use super::record;
use crate::{EventKind, ImageFact, NodePolicy, Pod, container::ImageState, status::format_duration, time::after};
use api::{feature_gates::Gate, pod::image_volumes};
use jiff::Timestamp;
use std::time::Duration;

/// An image that a container cannot start without.
struct RequiredImage {
    /// As the spec names it.
    image: String,
    /// Whether it is that of a volume of the container, and not its own.
    volume: bool,
    /// Whom events of the image itself are about; those of a volume are the Pod's.
    about: Option<String>,
    container: String,
}

impl RequiredImage {
    /// `None` when the spec names another one meanwhile.
    fn find(pod: &Pod, container: &str, image: &str) -> Option<Self> {
        let (_, spec) = pod.container_spec(container)?;
        let own = spec.image.as_deref().unwrap_or("") == image;
        let volume = || image_volumes(pod.spec(), spec).any(|(_, source)| source.reference.as_deref() == Some(image));
        (own || volume()).then(|| Self {
            image: image.to_owned(),
            volume: !own,
            about: own.then(|| container.to_owned()),
            container: container.to_owned(),
        })
    }

    fn failed(&self, reason: String, message: String, at: Timestamp, delay: Duration) -> ImageState {
        ImageState::Failed { reason, message, at, delay, volume: self.volume.then(|| self.image.clone()) }
    }
}

pub(super) fn observe(pod: &mut Pod, name: &str, of: &str, fact: ImageFact, policy: &NodePolicy, now: Timestamp) {
    let Some(required) = RequiredImage::find(pod, name, of) else {
        return;
    };
    let (image, about) = (&required.image, required.about.as_deref());
    let before = pod.container(name).image.clone();
    // Nobody asked since the last failure: this one is old.
    let waits = matches!(&before, ImageState::Failed { at, delay, .. } if after(*at, *delay) > now);
    // The container itself has its image when that came; a volume's is one thing less to wait for.
    let there =
        |before: ImageState, image_ref| if required.volume { before } else { ImageState::Present { image_ref } };
    let state = match fact {
        ImageFact::SecretsMissing { names } => return secrets_missing(pod, &names),
        ImageFact::Pulling => {
            record(pod, EventKind::Normal, "Pulling", format!("Pulling image {image:?}"), about);
            // While a failed pull is tried again, its reason stays visible.
            if matches!(before, ImageState::Failed { .. }) { before } else { ImageState::Pulling }
        }
        ImageFact::Present { image_ref } => {
            let checked = policy.gates.enabled(Gate::KubeletEnsureSecretPulledImages);
            let and = if checked { " and can be accessed by the pod" } else { "" };
            let text = format!("Container image {image:?} already present on machine{and}");
            record(pod, EventKind::Normal, "Pulled", text, about);
            there(before, image_ref)
        }
        ImageFact::Pulled { image_ref, took, took_with_wait, size } => {
            let (took, waited) = (format_duration(took), format_duration(took_with_wait));
            let text = format!(
                "Successfully pulled image {image:?} in {took} ({waited} including waiting). Image size: {size} bytes."
            );
            record(pod, EventKind::Normal, "Pulled", text, about);
            there(before, image_ref)
        }
        _ if waits => return,
        ImageFact::PullFailed { error } => pull_failed(pod, &required, &error, policy, now),
        ImageFact::MustPull => {
            if !matches!(before, ImageState::Failed { .. }) {
                backing_off(pod, &required);
            }
            wait_for_pull(pod, &required, policy, now)
        }
        ImageFact::Failed { reason, message } => {
            let told = if reason == "ErrImageNeverPull" { reason.as_str() } else { "InspectFailed" };
            record(pod, EventKind::Warning, told, message.clone(), about);
            record(pod, EventKind::Warning, "Failed", format!("Error: {reason}"), Some(name));
            required.failed(reason, message, now, policy.image_backoff.initial)
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
    backing_off(pod, required);
    wait_for_pull(pod, required, policy, now)
}

fn backing_off(pod: &mut Pod, required: &RequiredImage) {
    let text = format!("Back-off pulling image {:?}", required.image);
    record(pod, EventKind::Normal, "BackOff", text, required.about.as_deref());
    record(pod, EventKind::Warning, "Failed", "Error: ImagePullBackOff".to_owned(), Some(&required.container));
}

/// Until the next pull one looks for the image now and then: somebody may bring it.
fn wait_for_pull(pod: &Pod, required: &RequiredImage, policy: &NodePolicy, now: Timestamp) -> ImageState {
    let Some(pull) = pod.pull_backoff(&required.image, now) else {
        return ImageState::Unknown;
    };
    let left = Duration::try_from(pull.retry_at().duration_since(now)).unwrap_or_default();
    let delay = left.min(policy.image_backoff.initial);
    required.failed(pull.reason.clone(), pull.message.clone(), now, delay)
}
