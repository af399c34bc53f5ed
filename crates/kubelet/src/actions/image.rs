//! An image for a container: found, or pulled by policy (upstream's `EnsureImageExists`).

use crate::{
    Shared,
    actor::Mail,
    images::{pull_secrets, reference::Reference},
};
use lifecycle::{Event, ImageFact, Pod};
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

/// Sees to it that the image of a container is there; it is not pulled unless `pull` says so.
pub(super) async fn ensure(
    shared: &Shared,
    pod: &Pod,
    container: &str,
    pull: bool,
    mail: &UnboundedSender<Mail>,
) -> ImageFact {
    let failed = |reason: &str, message: String| ImageFact::Failed { reason: reason.to_owned(), message };
    let spec = pod.spec_of(container);
    let name = spec.and_then(|c| c.image.as_deref()).unwrap_or("");
    let policy = spec.and_then(|c| c.image_pull_policy.as_deref()).unwrap_or("IfNotPresent");
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
        _ => shared.runtime.image(&reference.image).await,
    };
    let present = match present {
        Ok(present) => present,
        Err(error) => return failed("ImageInspectError", format!("Failed to inspect image {name:?}: {error}")),
    };
    let tell = |fact| {
        let _ = mail.send(Mail::Fact(Event::Image { container: container.to_owned(), image: name.to_owned(), fact }));
    };
    let (secrets, missing) = pull_secrets::fetch(shared, pod).await;
    if !missing.is_empty() {
        tell(ImageFact::SecretsMissing { names: missing });
    }
    let usable = match &present {
        Some(image) => shared.images.may_use(&reference, &image.id, &secrets).await,
        None => false,
    };
    match (verdict(policy, usable), present) {
        (Verdict::Use, Some(image)) => ImageFact::Present { image_ref: image.id },
        (Verdict::Refuse, _) => {
            failed("ErrImageNeverPull", format!("Container image {name:?} is not present with pull policy of Never"))
        }
        _ if !pull => ImageFact::MustPull,
        _ => {
            tell(ImageFact::Pulling);
            match shared.images.pull(shared.runtime.as_ref(), name, &reference, &secrets).await {
                Ok(pulled) => {
                    let size = shared.runtime.image(&pulled.image_ref).await.ok().flatten().map_or(0, |i| i.size);
                    let (took, took_with_wait) = (pulled.took, pulled.took_with_wait);
                    ImageFact::Pulled { image_ref: pulled.image_ref, took, took_with_wait, size }
                }
                Err(error) => ImageFact::PullFailed { error },
            }
        }
    }
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
