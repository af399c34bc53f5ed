//! Images of containers: present, or pulled by policy (upstream's `EnsureImageExists`).

use super::sandbox::{self, RuntimeClassError};
use crate::{
    Shared,
    images::{
        pull_secrets,
        reference::{Reference, ReferenceError},
    },
    pod_worker::PodMessage,
    pods,
};
use api::feature_gates::Gate;
use k8s_openapi::api::core::v1::{Container, Secret};
use lifecycle::{ImageEvent, Pod, PodLifecycleEvent};
use runtime::{ImageMount, ImageSpec, RuntimeError};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::mpsc::UnboundedSender;

/// Decision about an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PullDecision {
    /// Present, and the Pod may use it.
    Use,
    /// Must be pulled.
    Pull,
    /// Missing and must not be pulled. An image that the Pod may not use counts as missing.
    Refuse,
}

/// Decides by `imagePullPolicy`, and whether the image is present and usable by this Pod.
fn pull_decision(policy: &str, usable: bool) -> PullDecision {
    match (policy, usable) {
        ("Always", _) => PullDecision::Pull,
        (_, true) => PullDecision::Use,
        ("Never", false) => PullDecision::Refuse,
        (_, false) => PullDecision::Pull,
    }
}

/// Image that a container requires.
struct RequiredImage<'a> {
    /// Name in the spec.
    name: &'a str,
    /// Pull policy.
    policy: &'a str,
    /// Runtime handler; empty for the default.
    handler: &'a str,
}

/// Ensures the images of a container's volumes and its own image, in this order (`EnsureImageExists`); without `pull`
/// none is pulled. Returns the event of the first failure, or of the container's own image.
pub(super) async fn ensure_image_exists(
    shared: &Shared,
    pod: &Pod,
    container: &str,
    pull: bool,
    sender: &UnboundedSender<PodMessage>,
) -> (String, ImageEvent) {
    let spec = pod.spec_of(container).cloned().unwrap_or_default();
    let send_event = |name: &str, event| {
        let _ = sender.send(PodMessage::Event(PodLifecycleEvent::Image {
            container: container.to_owned(),
            image: name.to_owned(),
            event,
        }));
    };
    let handler = match handler(shared, pod).await {
        Ok(handler) => handler,
        Err(error) => {
            let (reason, message) = ("ImageInspectError".to_owned(), error.to_string());
            return (spec.image.unwrap_or_default(), ImageEvent::Failed { reason, message });
        }
    };
    let own_image = RequiredImage {
        name: spec.image.as_deref().unwrap_or(""),
        policy: spec.image_pull_policy.as_deref().unwrap_or("IfNotPresent"),
        handler: &handler,
    };
    let (secrets, missing) = pull_secrets::fetch(shared, pod).await;
    if !missing.is_empty() {
        send_event(own_image.name, ImageEvent::SecretsMissing { names: missing });
    }
    for (_, volume) in api::pod::image_volumes(pods::spec(pod), &spec) {
        let required = RequiredImage {
            name: volume.reference.as_deref().unwrap_or(""),
            policy: volume.pull_policy.as_deref().unwrap_or("IfNotPresent"),
            handler: &handler,
        };
        match find_or_pull(shared, &required, &secrets, pull, || send_event(required.name, ImageEvent::Pulling)).await {
            event @ (ImageEvent::Present { .. } | ImageEvent::Pulled { .. }) => send_event(required.name, event),
            event => return (required.name.to_owned(), event),
        }
    }
    let event =
        find_or_pull(shared, &own_image, &secrets, pull, || send_event(own_image.name, ImageEvent::Pulling)).await;
    (own_image.name.to_owned(), event)
}

/// Returns the runtime handler that the Pod's images are for, if images depend on it.
async fn handler(shared: &Shared, pod: &Pod) -> Result<String, RuntimeClassError> {
    if !shared.options.policy.gates.enabled(Gate::RuntimeClassInImageCriApi) {
        return Ok(String::new());
    }
    sandbox::runtime_handler(shared, pod).await
}

/// Finds an image, or pulls it as its pull policy says.
async fn find_or_pull(
    shared: &Shared,
    required: &RequiredImage<'_>,
    secrets: &[Arc<Secret>],
    pull: bool,
    pulling: impl FnOnce(),
) -> ImageEvent {
    let failed = |reason: &str, message: String| ImageEvent::Failed { reason: reason.to_owned(), message };
    let RequiredImage { name, policy, handler } = *required;
    let spec = |image| ImageSpec { image, runtime_handler: handler };
    let reference = match Reference::parse(name) {
        Ok(reference) => reference,
        Err(error) => {
            let text =
                format!("Failed to apply default image tag {name:?}: couldn't parse image name {name:?}: {error}");
            return failed("InvalidImageName", text);
        }
    };
    let present = match policy {
        // `Always` pulls even a present image.
        "Always" => Ok(None),
        _ => shared.runtime.image(spec(&reference.image)).await,
    };
    let present = match present {
        Ok(present) => present,
        Err(error) => return failed("ImageInspectError", format!("Failed to inspect image {name:?}: {error}")),
    };
    let usable = match &present {
        Some(image) => shared.images.may_use(&reference, &image.id, secrets).await,
        None => false,
    };
    match (pull_decision(policy, usable), present) {
        (PullDecision::Use, Some(image)) => ImageEvent::Present { image_ref: image.id },
        (PullDecision::Refuse, _) => {
            failed("ErrImageNeverPull", format!("Container image {name:?} is not present with pull policy of Never"))
        }
        _ if !pull => ImageEvent::MustPull,
        _ => {
            pulling();
            match shared.images.pull(shared.runtime.as_ref(), name, &reference, handler, secrets).await {
                Ok(pulled) => {
                    let size = shared.runtime.image(spec(&pulled.image_ref)).await.ok().flatten().map_or(0, |i| i.size);
                    let (took, took_with_wait) = (pulled.took, pulled.took_with_wait);
                    ImageEvent::Pulled { image_ref: pulled.image_ref, took, took_with_wait, size }
                }
                Err(error) => ImageEvent::PullFailed { error: error.to_string() },
            }
        }
    }
}

/// The image of a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageVolumeError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error(transparent)]
    RuntimeClass(#[from] RuntimeClassError),
    #[error(transparent)]
    Inspect(#[from] RuntimeError),
    #[error("image {image:?} of volume {volume:?} is gone")]
    NotFound { image: String, volume: String },
}

/// Returns the images of the container's image volumes, by volume.
pub(super) async fn image_volume_mounts(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
) -> Result<BTreeMap<String, ImageMount>, ImageVolumeError> {
    let mut found = BTreeMap::new();
    for volume in pods::spec(pod).volumes.iter().flatten() {
        let mounted = container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name);
        let Some(source) = volume.image.as_ref().filter(|_| mounted) else { continue };
        let name = source.reference.clone().unwrap_or_default();
        let reference = Reference::parse(&name)?;
        let handler = handler(shared, pod).await?;
        let spec = ImageSpec { image: &reference.image, runtime_handler: &handler };
        let Some(image) = shared.runtime.image(spec).await? else {
            return Err(ImageVolumeError::NotFound { image: name, volume: volume.name.clone() });
        };
        found.insert(volume.name.clone(), ImageMount { image_ref: image.id, image: name, sub_path: String::new() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{PullDecision::*, pull_decision};

    #[test]
    fn pull_policy_decides_about_the_image() {
        for (policy, usable, expected) in [
            ("Always", true, Pull),
            ("Always", false, Pull),
            ("IfNotPresent", true, Use),
            ("IfNotPresent", false, Pull),
            ("Never", true, Use),
            ("Never", false, Refuse),
        ] {
            assert_eq!(pull_decision(policy, usable), expected, "{policy} {usable}");
        }
    }
}
