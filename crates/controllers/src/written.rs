//! What a controller has written itself, and its watch has not shown yet.
//!
//! Revisions are ordered: once the watch has shown the last of its writes, what is known is what it made. Until then it
//! counts on nothing, so that nothing is made twice: upstream's expectations.

use crate::clock::after;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// For how long the watch is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last write for each key.
#[derive(Debug, Default)]
pub(crate) struct Written(HashMap<String, (u64, Instant)>);

/// What is written at one go.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Revision(u64);

impl Revision {
    /// Something was written, and this is what became of it.
    pub(crate) fn saw(&mut self, meta: &ObjectMeta) {
        let revision = meta.resource_version.as_deref().and_then(|r| r.parse().ok());
        self.0 = self.0.max(revision.unwrap_or(0));
    }
}

impl Written {
    /// How long there is still to wait until the watch, which has come to `seen`, shows what was written for a key.
    pub(crate) fn outstanding(&mut self, key: &str, seen: u64, now: Instant) -> Option<Duration> {
        let (revision, until) = *self.0.get(key)?;
        if seen < revision && now < until {
            return Some(until.saturating_duration_since(now));
        }
        self.0.remove(key);
        None
    }

    pub(crate) fn note(&mut self, key: &str, revision: Revision, now: Instant) {
        if revision.0 > 0 {
            self.0.insert(key.to_owned(), (revision.0, after(now, PATIENCE)));
        }
    }

    pub(crate) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_until_the_watch_shows_it_but_not_for_ever() {
        let (mut written, now) = (Written::default(), Instant::now());
        let mut revision = Revision::default();
        written.note("a", revision, now);
        assert_eq!(written.outstanding("a", 0, now), None);
        revision.saw(&ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() });
        written.note("a", revision, now);
        assert_eq!(written.outstanding("a", 6, now), Some(PATIENCE));
        assert_eq!(written.outstanding("a", 7, now), None);
        written.note("a", revision, now);
        assert_eq!(written.outstanding("a", 6, now + PATIENCE), None);
    }
}
