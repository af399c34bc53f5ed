//! The current time, as objects have it.

/// Returns the current time, truncated to seconds as in `metav1.Time`.
pub(crate) fn now() -> jiff::Timestamp {
    truncate_to_seconds(jiff::Timestamp::now())
}

/// Truncates a time to seconds.
pub(crate) fn truncate_to_seconds(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time)
}
