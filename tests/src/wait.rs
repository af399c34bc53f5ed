//! Waits for conditions with a deadline.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

/// Variable with the factor of all timeouts, 1 to 100: emulated machines are slow.
const TIMEOUT_FACTOR: &str = "PODIUM_TEST_TIMEOUT_FACTOR";

/// Returns a timeout, multiplied by `PODIUM_TEST_TIMEOUT_FACTOR`.
#[must_use]
pub fn scaled(timeout: Duration) -> Duration {
    static FACTOR: LazyLock<u32> = LazyLock::new(|| {
        let factor = std::env::var(TIMEOUT_FACTOR).ok().and_then(|text| text.parse().ok());
        factor.filter(|factor| (1..=100).contains(factor)).unwrap_or(1)
    });
    timeout.saturating_mul(*FACTOR)
}

/// Calls `probe` until it returns `Ok`, for at most `limit`, [`scaled`].
///
/// # Panics
/// When `probe` does not return `Ok` in time. The message has the condition and the last error.
#[track_caller]
pub fn wait_for<T>(description: &str, limit: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let (start, limit) = (Instant::now(), scaled(limit));
    loop {
        match probe() {
            Ok(value) => return value,
            Err(seen) if start.elapsed() > limit => {
                panic!("waited {limit:?} for {description}; last seen: {seen}")
            }
            Err(_) => pause(Duration::from_millis(25)),
        }
    }
}

/// Waits up to 60 s until `probe` returns true.
///
/// # Panics
/// When it does not return true in time.
#[track_caller]
pub fn eventually(description: &str, mut probe: impl FnMut() -> bool) {
    wait_for(description, Duration::from_secs(60), || if probe() { Ok(()) } else { Err("false".to_owned()) });
}

/// Sleeps between two polls of a condition that has no event.
fn pause(step: Duration) {
    std::thread::park_timeout(step);
}
