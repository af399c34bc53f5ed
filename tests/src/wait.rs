//! Waiting for conditions, never for time.

use std::time::{Duration, Instant};

/// Calls `probe` until it gives something, for at most `limit`.
///
/// # Panics
/// When it gives nothing in time; the message names what was waited for and what `probe` saw last.
#[track_caller]
pub fn wait_for<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(value) => return value,
            Err(seen) if start.elapsed() > limit => {
                panic!("waited {limit:?} for {what}; last seen: {seen}")
            }
            Err(_) => pause(Duration::from_millis(25)),
        }
    }
}

/// Waits up to 60 s until `probe` holds.
///
/// # Panics
/// When it does not hold in time.
#[track_caller]
pub fn eventually(what: &str, mut probe: impl FnMut() -> bool) {
    wait_for(what, Duration::from_secs(60), || if probe() { Ok(()) } else { Err("not so".to_owned()) });
}

/// The step between two looks at a condition that gives no signal of its own.
fn pause(step: Duration) {
    std::thread::park_timeout(step);
}
