//! Durations in Go's format (`time.Duration`): `1m30s`, `500ms`, `1.5s`.

pub(crate) use api::duration::format_duration;

use std::time::Duration;

/// Parses a duration (`time.ParseDuration`). A negative one becomes zero.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if let Some(magnitude) = text.strip_prefix('-') {
        return (!magnitude.starts_with(['-', '+'])).then(|| parse(magnitude)).flatten().map(|_| Duration::ZERO);
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let seconds = match &tail[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = &tail[unit..];
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(total).ok() }
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
