//! Pulls: as many at a time, and as often, as the node allows (upstream's `pkg/kubelet/images/puller.go`, `helpers.go`).

use super::keyring::Credential;
use crate::{clock::Clock, config::ImagesConfiguration};
use jiff::Timestamp;
use parking_lot::Mutex;
use runtime::{ImageSpec, Runtime};
use std::time::Duration;
use tokio::{sync::Semaphore, time::Instant};

/// Upstream's words when there were more pulls than `registryPullQPS` and `registryBurst` allow.
const TOO_OFTEN: &str = "pull QPS exceeded";

pub(crate) struct Puller {
    turns: Semaphore,
    bucket: Option<Mutex<Bucket>>,
    clock: Clock,
}

/// An image that came.
#[derive(Debug)]
pub(crate) struct Pulled {
    pub(crate) image_ref: String,
    /// How long the pull took, and the same with the wait for its turn.
    pub(crate) took: Duration,
    pub(crate) took_with_wait: Duration,
    /// Whose credentials did it; `None` for none.
    pub(crate) with: Option<Credential>,
}

impl Puller {
    pub(crate) fn new(config: &ImagesConfiguration, clock: Clock) -> Self {
        let turns = config.parallel_pulls().and_then(|n| usize::try_from(n).ok());
        let turns = turns.unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        let bucket = Bucket::new(config.registry_pull_qps, config.registry_burst, clock.now());
        Self { turns: Semaphore::new(turns), bucket: bucket.map(Mutex::new), clock }
    }

    /// Pulls an image when it is its turn: with each of the credentials until one will do, or without any.
    ///
    /// # Errors
    /// What the runtime said, each thing once.
    pub(crate) async fn pull(
        &self,
        runtime: &dyn Runtime,
        image: ImageSpec<'_>,
        credentials: &[Credential],
    ) -> Result<Pulled, String> {
        let asked = Instant::now();
        let _turn = self.turns.acquire().await.map_err(|e| e.to_string())?;
        if self.bucket.as_ref().is_some_and(|bucket| !bucket.lock().take(self.clock.now())) {
            return Err(TOO_OFTEN.to_owned());
        }
        let started = Instant::now();
        let mut errors: Vec<String> = Vec::new();
        let tries = credentials.iter().map(Some).chain(credentials.is_empty().then_some(None));
        for with in tries {
            match runtime.pull_image(image, with.map(Credential::auth).as_ref()).await {
                Ok(image_ref) => {
                    let (took, took_with_wait) = (started.elapsed(), asked.elapsed());
                    return Ok(Pulled { image_ref, took, took_with_wait, with: with.cloned() });
                }
                Err(error) => errors.push(error.to_string()),
            }
        }
        Err(aggregate(errors))
    }
}

/// Several errors as upstream shows them: the one, or all in brackets.
fn aggregate(mut errors: Vec<String>) -> String {
    let mut seen = std::collections::HashSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    if errors.len() == 1 { errors.remove(0) } else { format!("[{}]", errors.join(", ")) }
}

/// So many at once, and so many more each second.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    burst: f64,
    left: f64,
    at: Timestamp,
}

impl Bucket {
    /// `None` when there is no limit.
    fn new(per_second: i32, burst: i32, now: Timestamp) -> Option<Self> {
        (per_second > 0).then(|| Self {
            per_second: per_second.into(),
            burst: burst.into(),
            left: burst.into(),
            at: now,
        })
    }

    /// Whether there is one left.
    fn take(&mut self, now: Timestamp) -> bool {
        let passed = now.duration_since(self.at).as_secs_f64().max(0.0);
        self.left = (self.left + passed * self.per_second).min(self.burst);
        self.at = self.at.max(now);
        let allowed = self.left >= 1.0;
        if allowed {
            self.left -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_then_so_many_each_second() {
        let at = |millis: i64| Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_millis(millis);
        let mut bucket = Bucket::new(2, 3, at(0)).unwrap();
        let asked = [0, 0, 0, 0, 499, 500, 501, 1000, 9000, 9000, 9000, 9000, 8000];
        let given: Vec<bool> = asked.into_iter().map(|millis| bucket.take(at(millis))).collect();
        let expected = [true, true, true, false, false, true, false, true, true, true, true, false, false];
        assert_eq!(given, expected);
        assert!(Bucket::new(0, 10, at(0)).is_none());
        assert!(!Bucket::new(5, 0, at(0)).unwrap().take(at(1000)));
    }

    #[test]
    fn several_errors_are_told_once_each() {
        let told = |errors: &[&str]| aggregate(errors.iter().map(|e| (*e).to_owned()).collect());
        assert_eq!(told(&["a"]), "a");
        assert_eq!(told(&["a", "a"]), "a");
        assert_eq!(told(&["a", "b", "a"]), "[a, b]");
    }
}
