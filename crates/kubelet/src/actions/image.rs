//! An image for a container: found, or pulled by policy (upstream's `EnsureImageExists`).

use super::sandbox;
use crate::{
    Shared,
    actor::PodMessage,
    images::{pull_secrets, reference::Reference},
    pods,
};
use api::feature_gates::Gate;
use k8s_openapi::api::core::v1::{Container, Secret};
use lifecycle::{Event, ImageFact, Pod};
use runtime::{ImageMount, ImageSpec};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::mpsc::UnboundedSender;

/// What is to be done about an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is there, and this Pod may use it.
    Use,
    /// It is to be pulled.
    Pull,
    /// It may not be pulled, and it is not there; or this Pod may not use it, which looks the same.
    Refuse,
}

/// `imagePullPolicy`, for an image that is there for this Pod to use, or not.
fn verdict(policy: &str, usable: bool) -> Verdict {
    match (policy, usable) {
        ("Always", _) => Verdict::Pull,
        (_, true) => Verdict::Use,
        ("Never", false) => Verdict::Refuse,
        (_, false) => Verdict::Pull,
    }
}

/// An image that a container needs.
struct Wanted<'a> {
    /// As the spec names it.
    name: &'a str,
    /// When it is pulled.
    policy: &'a str,
    /// What of the runtime it is for; empty for all.
    handler: &'a str,
}

/// Sees to it that the images of a container's volumes and its own are there, in this order; none is pulled unless `pull`
/// says so. Gives what came of the last one that was looked for: the first that is not to be had, or the container's own.
pub(super) async fn ensure(
    shared: &Shared,
    pod: &Pod,
    container: &str,
    pull: bool,
    messages: &UnboundedSender<PodMessage>,
) -> (String, ImageFact) {
    let spec = pod.spec_of(container).cloned().unwrap_or_default();
    let tell = |name: &str, fact| {
        let _ = messages.send(PodMessage::Event(Event::Image { container: container.to_owned(), image: name.to_owned(), fact }));
    };
    let handler = match handler(shared, pod).await {
        Ok(handler) => handler,
        Err(message) => {
            let reason = "ImageInspectError".to_owned();
            return (spec.image.unwrap_or_default(), ImageFact::Failed { reason, message });
        }
    };
    let own = Wanted {
        name: spec.image.as_deref().unwrap_or(""),
        policy: spec.image_pull_policy.as_deref().unwrap_or("IfNotPresent"),
        handler: &handler,
    };
    let (secrets, missing) = pull_secrets::fetch(shared, pod).await;
    if !missing.is_empty() {
        tell(own.name, ImageFact::SecretsMissing { names: missing });
    }
    for (_, volume) in api::pod::image_volumes(pods::spec(pod), &spec) {
        let wanted = Wanted {
            name: volume.reference.as_deref().unwrap_or(""),
            policy: volume.pull_policy.as_deref().unwrap_or("IfNotPresent"),
            handler: &handler,
        };
        match find_or_pull(shared, &wanted, &secrets, pull, || tell(wanted.name, ImageFact::Pulling)).await {
            fact @ (ImageFact::Present { .. } | ImageFact::Pulled { .. }) => tell(wanted.name, fact),
            fact => return (wanted.name.to_owned(), fact),
        }
    }
    let fact = find_or_pull(shared, &own, &secrets, pull, || tell(own.name, ImageFact::Pulling)).await;
    (own.name.to_owned(), fact)
}

/// For what of the runtime the Pod's images are, where that matters.
async fn handler(shared: &Shared, pod: &Pod) -> Result<String, String> {
    if !shared.options.policy.gates.enabled(Gate::RuntimeClassInImageCriApi) {
        return Ok(String::new());
    }
    sandbox::runtime_handler(shared, pod).await
}

async fn find_or_pull(
    shared: &Shared,
    wanted: &Wanted<'_>,
    secrets: &[Arc<Secret>],
    pull: bool,
    pulling: impl FnOnce(),
) -> ImageFact {
    let failed = |reason: &str, message: String| ImageFact::Failed { reason: reason.to_owned(), message };
    let Wanted { name, policy, handler } = *wanted;
    let spec = |image| ImageSpec { image, runtime_handler: handler };
    let reference = match Reference::parse(name) {
        Ok(reference) => reference,
        Err(why) => {
            let text = format!("Failed to apply default image tag {name:?}: couldn't parse image name {name:?}: {why}");
            return failed("InvalidImageName", text);
        }
    };
    let present = match policy {
        // What is there does not matter.
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
    match (verdict(policy, usable), present) {
        (Verdict::Use, Some(image)) => ImageFact::Present { image_ref: image.id },
        (Verdict::Refuse, _) => {
            failed("ErrImageNeverPull", format!("Container image {name:?} is not present with pull policy of Never"))
        }
        _ if !pull => ImageFact::MustPull,
        _ => {
            pulling();
            match shared.images.pull(shared.runtime.as_ref(), name, &reference, handler, secrets).await {
                Ok(pulled) => {
                    let size = shared.runtime.image(spec(&pulled.image_ref)).await.ok().flatten().map_or(0, |i| i.size);
                    let (took, took_with_wait) = (pulled.took, pulled.took_with_wait);
                    ImageFact::Pulled { image_ref: pulled.image_ref, took, took_with_wait, size }
                }
                Err(error) => ImageFact::PullFailed { error },
            }
        }
    }
}

/// The images of the container's volumes as the runtime knows them, by volume.
pub(super) async fn of_volumes(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
) -> Result<BTreeMap<String, ImageMount>, String> {
    let mut found = BTreeMap::new();
    for volume in pods::spec(pod).volumes.iter().flatten() {
        let mounted = container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name);
        let Some(source) = volume.image.as_ref().filter(|_| mounted) else { continue };
        let name = source.reference.clone().unwrap_or_default();
        let reference = Reference::parse(&name)?;
        let handler = handler(shared, pod).await?;
        let spec = ImageSpec { image: &reference.image, runtime_handler: &handler };
        let image = shared.runtime.image(spec).await.map_err(|e| e.to_string())?;
        let image_ref = image.ok_or_else(|| format!("image {name:?} of volume {:?} is gone", volume.name))?.id;
        found.insert(volume.name.clone(), ImageMount { image_ref, image: name, sub_path: String::new() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Verdict::*, verdict};

    #[test]
    fn the_pull_policy_decides() {
        for (policy, usable, expected) in [
            ("Always", true, Pull),
            ("Always", false, Pull),
            ("IfNotPresent", true, Use),
            ("IfNotPresent", false, Pull),
            ("Never", true, Use),
            ("Never", false, Refuse),
        ] {
            assert_eq!(verdict(policy, usable), expected, "{policy} {usable}");
        }
    }
}
