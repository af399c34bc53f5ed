//! What a controller has written itself, and its watch has not shown yet.
//!
//! Revisions are ordered: once the watch has shown the last of its writes, what is known is what it made. Until then it
//! counts on nothing, so that nothing is made twice: upstream's expectations.

use crate::clock::saturating_add;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// For how long the watch is waited for.
const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(10);

/// The last write for each key.
#[derive(Debug, Default)]
pub(crate) struct Expectations(HashMap<String, (u64, Instant)>);

/// What is written at one go.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ExpectedVersion(u64);

impl ExpectedVersion {
    /// Something was written, and this is what became of it.
    pub(crate) fn observe(&mut self, meta: &ObjectMeta) {
        let revision = meta.resource_version.as_deref().and_then(|r| r.parse().ok());
        self.0 = self.0.max(revision.unwrap_or(0));
    }
}

impl Expectations {
    /// How long there is still to wait until the watch, which has come to `seen`, shows what was written for a key.
    pub(crate) fn remaining_wait(&mut self, key: &str, observed: u64, now: Instant) -> Option<Duration> {
        let (revision, until) = *self.0.get(key)?;
        if observed < revision && now < until {
            return Some(until.saturating_duration_since(now));
        }
        self.0.remove(key);
        None
    }

    pub(crate) fn set(&mut self, key: &str, expected: ExpectedVersion, now: Instant) {
        if expected.0 > 0 {
            self.0.insert(key.to_owned(), (expected.0, saturating_add(now, EXPECTATIONS_TIMEOUT)));
        }
    }

    pub(crate) fn delete(&mut self, key: &str) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_until_the_watch_shows_it_but_not_for_ever() {
        let (mut expectations, now) = (Expectations::default(), Instant::now());
        let mut expected = ExpectedVersion::default();
        expectations.set("a", expected, now);
        assert_eq!(expectations.remaining_wait("a", 0, now), None);
        expected.observe(&ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() });
        expectations.set("a", expected, now);
        assert_eq!(expectations.remaining_wait("a", 6, now), Some(EXPECTATIONS_TIMEOUT));
        assert_eq!(expectations.remaining_wait("a", 7, now), None);
        expectations.set("a", expected, now);
        assert_eq!(expectations.remaining_wait("a", 6, now + EXPECTATIONS_TIMEOUT), None);
    }
}
