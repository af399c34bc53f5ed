//! Durations in Go's format (`time.Duration`): `1m30s`, `500ms`, `1.5s`.

pub(crate) use api::duration::format_duration;

use std::time::Duration;

/// Parses a duration (`time.ParseDuration`). A negative one becomes zero.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    api::duration::parse_duration(text).ok().map(|parsed| Duration::try_from(parsed).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, millis: Option<u128>) {
        assert_eq!(parse(text).map(|d| d.as_millis()), millis, "{text}");
    }

    #[test]
    fn duration_parses_as_in_go() {
        check("34s", Some(34_000));
        check("1m30s", Some(90_000));
        check("1.5s", Some(1_500));
        check("500ms", Some(500));
        check("0", Some(0));
        check("+1s", Some(1000));
        check("-1s", Some(0));
        for bad in ["", "-", "--1s", "5", "s", "1x", "1s2", "١s", "999999999999999999999999h"] {
            check(bad, None);
        }
    }
}
