//! Images: found, or pulled by policy, one at a time.

use crate::{Shared, actor::Mail};
use lifecycle::{Event, ImageFact, Pod};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

pub(super) async fn ensure(shared: &Shared, pod: &Pod, container: &str, mail: &UnboundedSender<Mail>) -> ImageFact {
    let spec = pod.spec_of(container);
    let image = spec.and_then(|c| c.image.as_deref()).unwrap_or("");
    let policy = spec.and_then(|c| c.image_pull_policy.as_deref()).unwrap_or("IfNotPresent");
    let failed = |reason: &str, message: String| ImageFact::Failed { reason: reason.to_owned(), message };
    if let Err(why) = check_name(image) {
        let message =
            format!("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}");
        return failed("InvalidImageName", message);
    }
    let present = match shared.runtime.image(image).await {
        Ok(present) => present,
        Err(error) => return failed("ImageInspectError", format!("Failed to inspect image {image:?}: {error}")),
    };
    match (policy, present) {
        ("IfNotPresent" | "Never", Some(found)) => return ImageFact::Present { image_ref: found.id },
        ("Never", None) => {
            return failed(
                "ErrImageNeverPull",
                format!("Container image {image:?} is not present with pull policy of Never"),
            );
        }
        _ => {}
    }
    let asked = Instant::now();
    let Ok(_turn) = shared.pulls.acquire().await else {
        return failed("ErrImagePull", "the kubelet is stopping".to_owned());
    };
    let pulling = Event::Image { container: container.to_owned(), image: image.to_owned(), fact: ImageFact::Pulling };
    let _ = mail.send(Mail::Fact(pulling));
    let started = Instant::now();
    match shared.runtime.pull_image(image, None).await {
        Ok(image_ref) => {
            let size = shared.runtime.image(&image_ref).await.ok().flatten().map_or(0, |i| i.size);
            ImageFact::Pulled { image_ref, took: started.elapsed(), took_with_wait: asked.elapsed(), size }
        }
        Err(error) => failed("ErrImagePull", error.to_string()),
    }
}

/// The grammar of image references, as far as mistakes go (`distribution/reference`).
fn check_name(image: &str) -> Result<(), &'static str> {
    let (name, digest) = image.split_once('@').map_or((image, None), |(n, d)| (n, Some(d)));
    if digest.is_some_and(|d| !d.contains(':')) {
        return Err("invalid reference format");
    }
    let slash = name.rfind('/').map_or(0, |i| i + 1);
    let (path, tag) = name[slash..].split_once(':').map_or((name, None), |(n, t)| (&name[..slash + n.len()], Some(t)));
    if tag.is_some_and(|t| {
        t.is_empty() || t.len() > 128 || !t.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    }) {
        return Err("invalid reference format");
    }
    // The first part may be a host with a port, and may have capital letters then.
    let repository = match path.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest,
        _ => path,
    };
    if repository.bytes().any(|b| b.is_ascii_uppercase()) && repository.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("invalid reference format: repository name must be lowercase");
    }
    let part_ok = |p: &str| {
        let b = p.as_bytes();
        matches!((b.first(), b.last()), (Some(f), Some(l)) if f.is_ascii_alphanumeric() && l.is_ascii_alphanumeric())
            && b.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(c))
    };
    if repository.split('/').all(part_ok) { Ok(()) } else { Err("invalid reference format") }
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[track_caller]
    fn check(image: &str, valid: bool) {
        assert_eq!(check_name(image).is_ok(), valid, "{image}");
    }

    #[test]
    fn image_names_follow_the_reference_grammar() {
        for good in [
            "busybox",
            "busybox:1.28",
            "docker.io/library/busybox:1.28",
            "127.0.0.1:9/nothing:1",
            "a/b@sha256:00",
            "HOST.example:5/a",
        ] {
            check(good, true);
        }
        for bad in ["", "Busybox", "a b", "Not An Image!", "a:", "a/", "/a", "a@b", "a:b:c"] {
            check(bad, false);
        }
    }
}
