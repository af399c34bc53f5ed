//! Attempts of a request.

use crate::{PullError, PullErrorKind, Timeouts};
use std::time::Duration;

/// Maximum number of attempts, as containerd's.
const MAX_ATTEMPTS: u32 = 5;
/// Maximum time that a registry may make a pull wait. After it, the kubelet's own backoff applies.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Maximum delay between attempts without a request of the registry.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Remaining attempts of a request, with exponential backoff.
pub(crate) struct Retries {
    left: u32,
    delay: Duration,
    initial: Duration,
}

impl Retries {
    /// Allows further attempts only if no other host could be used instead.
    pub(crate) fn new(timeouts: Timeouts, is_last_host: bool) -> Self {
        let left = if is_last_host { MAX_ATTEMPTS - 1 } else { 0 };
        Self { left, delay: timeouts.backoff, initial: timeouts.backoff }
    }

    /// Allows all attempts again, after progress.
    pub(crate) fn reset(&mut self) {
        self.left = MAX_ATTEMPTS - 1;
        self.delay = self.initial;
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// Fails with the error of the last attempt if another one is useless, or not allowed.
    pub(crate) async fn wait(&mut self, error: PullError) -> Result<(), PullError> {
        let Some(retry_after) = error.retry_after().filter(|after| *after <= MAX_RETRY_AFTER) else {
            return Err(error);
        };
        let Some(left) = self.left.checked_sub(1) else { return Err(error) };
        let delay = self.delay.max(retry_after);
        tracing::debug!(%error, ?delay, "request failed, retrying");
        tokio::time::sleep(delay).await;
        self.left = left;
        self.delay = self.delay.saturating_mul(2).min(MAX_BACKOFF);
        Ok(())
    }
}

/// Returns an error of a broken protocol that another attempt may avoid.
pub(crate) fn broken(message: &str) -> PullError {
    PullError::new(PullErrorKind::Connection, message).transient(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn delays_double_until_attempts_end() {
        let mut retries = Retries::new(Timeouts::default(), true);
        let start = Instant::now();
        let mut delays = Vec::new();
        while retries.wait(broken("a")).await.is_ok() {
            delays.push(start.elapsed().as_millis());
        }
        assert_eq!(delays, [250, 750, 1750, 3750]);
        retries.reset();
        assert!(retries.wait(broken("a")).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_honoured_up_to_a_limit() {
        let mut retries = Retries::new(Timeouts::default(), true);
        let start = Instant::now();
        let error =
            |seconds| PullError::new(PullErrorKind::TooManyRequests, "a").transient(Duration::from_secs(seconds));
        retries.wait(error(7)).await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(7));
        assert!(retries.wait(error(61)).await.is_err());
        assert!(retries.wait(PullError::new(PullErrorKind::NotFound, "a")).await.is_err());
        assert_eq!(start.elapsed(), Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn mirror_gets_one_attempt() {
        assert!(Retries::new(Timeouts::default(), false).wait(broken("a")).await.is_err());
    }
}
