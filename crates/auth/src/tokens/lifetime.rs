//! Maximum lifetime of requested tokens: `--service-account-max-token-expiration` and
//! `--service-account-extend-token-expiration`.

use std::time::Duration;

const HOUR: u64 = 3600;
const YEAR: i64 = 365 * 24 * 3600;
const MAX_SECONDS: u64 = 1 << 32;
/// Requested lifetime of tokens that admission mounts into Pods. Their lifetime is extended, for clients that never
/// reload the file; `warnafter` is the time at which they should have reloaded it.
const WARN_ONLY_SECONDS: i64 = 3607;

/// Error of a maximum lifetime that is less than an hour or more than 2^32 seconds, with upstream's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")]
pub struct TokenLifetimeError;

/// The maximum lifetime of requested tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLifetime {
    /// In seconds; `None` means no maximum.
    max: Option<i64>,
    /// Whether mounted tokens are valid for a year.
    extend: bool,
}

impl Default for TokenLifetime {
    /// A year, unlike upstream, which has no maximum.
    fn default() -> Self {
        Self { max: Some(YEAR), extend: true }
    }
}

impl TokenLifetime {
    /// Creates the configuration. Zero means no maximum; `extend` makes mounted tokens valid for a year despite the
    /// maximum.
    ///
    /// # Errors
    /// When the maximum is less than an hour or more than 2^32 seconds.
    pub fn new(max: Duration, extend: bool) -> Result<Self, TokenLifetimeError> {
        if max.is_zero() {
            return Ok(Self { max: None, extend });
        }
        // Compared with its fraction of a second.
        if max < Duration::from_secs(HOUR) || max > Duration::from_secs(MAX_SECONDS) {
            return Err(TokenLifetimeError);
        }
        Ok(Self { max: i64::try_from(max.as_secs()).ok(), extend })
    }

    /// Returns the granted seconds, and a warning when the requested ones are shortened.
    pub fn grant(self, requested: i64) -> (i64, Option<String>) {
        match self.max {
            Some(max) if requested > max => {
                (max, Some(format!("requested expiration of {requested} seconds shortened to {max} seconds")))
            }
            _ => (requested, None),
        }
    }

    /// Returns the extended lifetime of a mounted token in seconds.
    pub fn extended(self, granted: i64) -> Option<i64> {
        (self.extend && granted == WARN_ONLY_SECONDS).then_some(YEAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_is_an_hour_at_least() {
        let max = |seconds: u64| TokenLifetime::new(Duration::from_secs(seconds), true).map(|lifetime| lifetime.max);
        assert_eq!(max(0), Ok(None));
        assert_eq!(max(3600), Ok(Some(3600)));
        assert_eq!(max(1 << 32), Ok(Some(1 << 32)));
        for wrong in [1, 3599, (1 << 32) + 1] {
            assert!(max(wrong).unwrap_err().to_string().contains("between 1 hour and 2^32 seconds"), "{wrong}");
        }
    }

    #[test]
    fn longer_requests_are_shortened_with_a_warning() {
        let default = TokenLifetime::default();
        assert_eq!(default.grant(YEAR), (YEAR, None));
        let warning = "requested expiration of 4294967296 seconds shortened to 31536000 seconds";
        assert_eq!(default.grant(1 << 32), (YEAR, Some(warning.to_owned())));
        let unlimited = TokenLifetime::new(Duration::ZERO, false).unwrap();
        assert_eq!(unlimited.grant(1 << 32), (1 << 32, None));
        assert_eq!(
            [default.extended(3607), default.extended(3600), unlimited.extended(3607)],
            [Some(YEAR), None, None]
        );
    }
}
