//! Image pull backoff (upstream's `image_manager.go`, `flowcontrol.Backoff`).

use crate::{BackoffPolicy, Pod, container::elapsed, time::after};
use api::pod::image_volumes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The last pull of an image for this Pod, which failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FailedPull {
    /// `ErrImagePull`, `RegistryUnavailable` or `SignatureValidationFailed`.
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
    /// Backoff after `at`.
    pub(crate) delay: Duration,
}

impl FailedPull {
    /// Creates a failed pull from the runtime's error, which may start with a reason of its own (`evalCRIPullErr`).
    pub(crate) fn new(image: &str, error: &str, at: Timestamp, delay: Duration) -> Self {
        let with_reason = |reason: &str, cause: &str| {
            let rest = error.strip_prefix(reason)?;
            Some((reason.to_owned(), format!("image pull failed for {image} because the {cause}{rest}")))
        };
        let (reason, message) = with_reason("RegistryUnavailable", "registry is unavailable")
            .or_else(|| with_reason("SignatureValidationFailed", "signature validation failed"))
            .unwrap_or_else(|| ("ErrImagePull".to_owned(), error.to_owned()));
        Self { reason, message, at, delay }
    }

    pub(crate) fn retry_at(&self) -> Timestamp {
        after(self.at, self.delay)
    }

    /// Returns whether the failure no longer raises the next backoff.
    fn expired(&self, policy: &BackoffPolicy, now: Timestamp) -> bool {
        elapsed(self.at, now) > policy.reset_after
    }
}

impl Pod {
    /// Returns the images that a container requires: its own, and those of its image volumes.
    pub(crate) fn images_of<'a>(&'a self, spec: &'a Container) -> impl Iterator<Item = &'a str> {
        let volumes = image_volumes(self.spec(), spec).filter_map(|(_, image)| image.reference.as_deref());
        spec.image.as_deref().into_iter().chain(volumes)
    }

    /// Returns the failed pull whose backoff blocks a pull of this image.
    pub(crate) fn pull_backoff(&self, image: &str, now: Timestamp) -> Option<&FailedPull> {
        self.pulls.get(image).filter(|pull| pull.retry_at() > now)
    }

    /// Records a failed pull. The backoff doubles with each failure, and is reset after `reset_after` without one.
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
