//! Expectations: writes of a controller that its informer has not observed yet (`ControllerExpectations`).
//!
//! Upstream counts expected creations and deletions. Here the `resourceVersion` of the last write is compared with
//! the informer's: until the informer has reached it, the key is not reconciled, so that nothing is created twice.

use crate::clock::saturating_add;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// Time after which an expectation is dropped although the informer has not observed it.
const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(10);

/// The `resourceVersion` of the last write for each key, and when the expectation expires.
#[derive(Debug, Default)]
pub(crate) struct Expectations(Mutex<HashMap<String, (u64, Instant)>>);

/// The highest `resourceVersion` of the writes of one reconcile.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ExpectedVersion(u64);

impl ExpectedVersion {
    /// Records the metadata that a write returned.
    pub(crate) fn observe(&mut self, meta: &ObjectMeta) {
        let revision = meta.resource_version.as_deref().and_then(|r| r.parse().ok());
        self.0 = self.0.max(revision.unwrap_or(0));
    }
}

impl Expectations {
    /// Returns the time until the expectation of a key expires, or `None` if `observed` has reached it.
    pub(crate) fn remaining_wait(&self, key: &str, observed: u64, now: Instant) -> Option<Duration> {
        let mut expected = self.0.lock();
        let (revision, until) = *expected.get(key)?;
        if observed < revision && now < until {
            return Some(until.saturating_duration_since(now));
        }
        expected.remove(key);
        None
    }

    /// Sets the expectation of a key. It expires after a time from now, not from the start of the reconcile, which may
    /// have waited for its requests.
    pub(crate) fn set(&self, key: &str, expected: ExpectedVersion) {
        if expected.0 > 0 {
            let until = saturating_add(Instant::now(), EXPECTATIONS_TIMEOUT);
            self.0.lock().insert(key.to_owned(), (expected.0, until));
        }
    }

    pub(crate) fn delete(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn expectation_ends_when_observed_or_expired() {
        let (expectations, now) = (Expectations::default(), Instant::now());
        let mut expected = ExpectedVersion::default();
        expectations.set("a", expected);
        assert_eq!(expectations.remaining_wait("a", 0, now), None);
        expected.observe(&ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() });
        expectations.set("a", expected);
        assert_eq!(expectations.remaining_wait("a", 6, now), Some(EXPECTATIONS_TIMEOUT));
        assert_eq!(expectations.remaining_wait("a", 7, now), None);
        expectations.set("a", expected);
        assert_eq!(expectations.remaining_wait("a", 6, now + EXPECTATIONS_TIMEOUT), None);
    }
}
