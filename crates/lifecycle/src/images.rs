//! When an image that could not be pulled is asked for again (upstream's `image_manager.go`, `flowcontrol.Backoff`).

use crate::{BackoffPolicy, Pod, container::elapsed, time::after};
use api::pod::image_volumes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The newest pull of an image for this Pod, which failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FailedPull {
    /// `ErrImagePull`, `RegistryUnavailable` or `SignatureValidationFailed`.
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
    /// How long after `at` it is tried again.
    pub(crate) delay: Duration,
}

impl FailedPull {
    /// What follows from the runtime's words: it may name a reason of its own at their beginning (`evalCRIPullErr`).
    pub(crate) fn new(image: &str, error: &str, at: Timestamp, delay: Duration) -> Self {
        let named = |reason: &str, why: &str| {
            let rest = error.strip_prefix(reason)?;
            Some((reason.to_owned(), format!("image pull failed for {image} because the {why}{rest}")))
        };
        let (reason, message) = named("RegistryUnavailable", "registry is unavailable")
            .or_else(|| named("SignatureValidationFailed", "signature validation failed"))
            .unwrap_or_else(|| ("ErrImagePull".to_owned(), error.to_owned()));
        Self { reason, message, at, delay }
    }

    pub(crate) fn retry_at(&self) -> Timestamp {
        after(self.at, self.delay)
    }

    /// Whether it counts no more for the next delay.
    fn expired(&self, policy: &BackoffPolicy, now: Timestamp) -> bool {
        elapsed(self.at, now) > policy.reset_after
    }
}

impl Pod {
    /// The images that a container cannot start without: its own, and those of its volumes.
    pub(crate) fn images_of<'a>(&'a self, spec: &'a Container) -> impl Iterator<Item = &'a str> {
        let volumes = image_volumes(self.spec(), spec).filter_map(|(_, image)| image.reference.as_deref());
        spec.image.as_deref().into_iter().chain(volumes)
    }

    /// The failed pull that keeps this image from being pulled now.
    pub(crate) fn pull_backoff(&self, image: &str, now: Timestamp) -> Option<&FailedPull> {
        self.pulls.get(image).filter(|pull| pull.retry_at() > now)
    }

    /// Takes note of a pull that failed: the delay doubles with each, until all went well for long enough.
    pub(crate) fn pull_failed(
        &mut self,
        image: &str,
        error: &str,
        policy: &BackoffPolicy,
        now: Timestamp,
    ) -> FailedPull {
        self.pulls.retain(|_, pull| !pull.expired(policy, now));
        let delay = policy.next(self.pulls.get(image).map_or(Duration::ZERO, |pull| pull.delay));
        let pull = FailedPull::new(image, error, now, delay);
        self.pulls.insert(image.to_owned(), pull.clone());
        pull
    }
}
