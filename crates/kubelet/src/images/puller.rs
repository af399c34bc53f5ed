//! Image puller with a limit on parallel pulls and a rate limit (upstream's `pkg/kubelet/images/puller.go`, `helpers.go`).

use super::keyring::Credential;
use crate::{clock::Clock, config::ImagesConfiguration};
use jiff::Timestamp;
use parking_lot::Mutex;
use runtime::{ImageSpec, Runtime, RuntimeError};
use std::time::Duration;
use tokio::{
    sync::{AcquireError, Semaphore},
    time::Instant,
};

/// Failure to pull an image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    /// The queue of pulls is closed.
    #[error(transparent)]
    Closed(#[from] AcquireError),
    /// The rate exceeds `registryPullQPS` and `registryBurst`, with upstream's message.
    #[error("pull QPS exceeded")]
    QpsExceeded,
    /// The runtime failed with each of the credentials.
    #[error("{}", aggregate(.0))]
    Attempts(Vec<RuntimeError>),
}

pub(crate) struct Puller {
    permits: Semaphore,
    bucket: Option<Mutex<TokenBucket>>,
    clock: Clock,
}

/// Result of a pull.
#[derive(Debug)]
pub(crate) struct PullResult {
    pub(crate) image_ref: String,
    /// Duration of the pull, without and with the wait in the queue.
    pub(crate) took: Duration,
    pub(crate) took_with_wait: Duration,
    /// Credentials of the successful pull, if any.
    pub(crate) credential: Option<Credential>,
}

impl Puller {
    pub(crate) fn new(config: &ImagesConfiguration, clock: Clock) -> Self {
        let permits = config.parallel_pulls().and_then(|n| usize::try_from(n).ok());
        let permits = permits.unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        let bucket = TokenBucket::new(config.registry_pull_qps, config.registry_burst, clock.now());
        Self { permits: Semaphore::new(permits), bucket: bucket.map(Mutex::new), clock }
    }

    /// Pulls an image with each of the credentials until one succeeds, or anonymously without any.
    ///
    /// # Errors
    /// Fails with the distinct errors of the runtime.
    pub(crate) async fn pull(
        &self,
        runtime: &dyn Runtime,
        image: ImageSpec<'_>,
        credentials: &[Credential],
    ) -> Result<PullResult, PullError> {
        let requested_at = Instant::now();
        let _permit = self.permits.acquire().await?;
        if self.bucket.as_ref().is_some_and(|bucket| !bucket.lock().take(self.clock.now())) {
            return Err(PullError::QpsExceeded);
        }
        let started = Instant::now();
        let mut errors = Vec::new();
        let attempts = credentials.iter().map(Some).chain(credentials.is_empty().then_some(None));
        for credential in attempts {
            match runtime.pull_image(image, credential.map(Credential::auth).as_ref()).await {
                Ok(image_ref) => {
                    let (took, took_with_wait) = (started.elapsed(), requested_at.elapsed());
                    return Ok(PullResult { image_ref, took, took_with_wait, credential: credential.cloned() });
                }
                Err(error) => errors.push(error),
            }
        }
        Err(PullError::Attempts(errors))
    }
}

/// Joins distinct errors as Go's aggregated errors.
fn aggregate(errors: &[RuntimeError]) -> String {
    let mut seen = std::collections::HashSet::new();
    let mut errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.retain(|error| seen.insert(error.clone()));
    if errors.len() == 1 { errors.remove(0) } else { format!("[{}]", errors.join(", ")) }
}

/// Token bucket rate limiter.
#[derive(Debug)]
struct TokenBucket {
    per_second: f64,
    burst: f64,
    left: f64,
    at: Timestamp,
}

impl TokenBucket {
    /// Creates a limiter; `None` without a limit.
    fn new(per_second: i32, burst: i32, now: Timestamp) -> Option<Self> {
        (per_second > 0).then(|| Self {
            per_second: per_second.into(),
            burst: burst.into(),
            left: burst.into(),
            at: now,
        })
    }

    /// Takes a token, if one is left.
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
    fn token_bucket_allows_burst_then_rate() {
        let at = |millis: i64| Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_millis(millis);
        let mut bucket = TokenBucket::new(2, 3, at(0)).unwrap();
        let requests = [0, 0, 0, 0, 499, 500, 501, 1000, 9000, 9000, 9000, 9000, 8000];
        let allowed: Vec<bool> = requests.into_iter().map(|millis| bucket.take(at(millis))).collect();
        let expected = [true, true, true, false, false, true, false, true, true, true, true, false, false];
        assert_eq!(allowed, expected);
        assert!(TokenBucket::new(0, 10, at(0)).is_none());
        assert!(!TokenBucket::new(5, 0, at(0)).unwrap().take(at(1000)));
    }

    #[test]
    fn errors_are_deduplicated_and_joined() {
        let joined =
            |errors: &[&str]| aggregate(&Vec::from_iter(errors.iter().map(|e| RuntimeError::Failed((*e).to_owned()))));
        assert_eq!(joined(&["a"]), "a");
        assert_eq!(joined(&["a", "a"]), "a");
        assert_eq!(joined(&["a", "b", "a"]), "[a, b]");
    }
}
