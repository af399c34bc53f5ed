//! Waits for conditions with a deadline.

use std::time::{Duration, Instant};

/// Calls `probe` until it returns `Ok`, for at most `limit`.
///
/// # Panics
/// When `probe` does not return `Ok` in time. The message has the condition and the last error.
#[track_caller]
pub fn wait_for<T>(description: &str, limit: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
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
