//! Formatting and parsing of durations as Go's `time.Duration`: `1m30s`, `500ms`, `1.5s`.

use std::time::Duration;

/// Formats a duration as Go's `Duration.String`, exact to the nanosecond.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    match (seconds, nanos) {
        (0, 0) => "0s".to_owned(),
        (0, 1..1_000) => format!("{nanos}ns"),
        (0, 1_000..1_000_000) => format!("{}µs", format_decimal(nanos.into(), 1_000)),
        (0, _) => format!("{}ms", format_decimal(nanos.into(), 1_000_000)),
        _ => {
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let rest = format_decimal(seconds % 60 * 1_000_000_000 + u64::from(nanos), 1_000_000_000);
            match (hours, minutes) {
                (0, 0) => format!("{rest}s"),
                (0, _) => format!("{minutes}m{rest}s"),
                _ => format!("{hours}h{minutes}m{rest}s"),
            }
        }
    }
}

/// Formats `number / unit` as a decimal without trailing zeros; `unit` is a power of 1000.
fn format_decimal(number: u64, unit: u64) -> String {
    let (whole, rest) = (number / unit, number % unit);
    if rest == 0 {
        return whole.to_string();
    }
    // The sum pads the fraction with leading zeros to the width of the unit.
    let digits = (unit + rest).to_string();
    format!("{whole}.{}", digits[1..].trim_end_matches('0'))
}

/// Parses a duration (`time.ParseDuration`). A negative one becomes zero.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
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

    #[test]
    fn duration_is_formatted_as_go() {
        for (nanos, expected) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (345_000_000, "345ms"),
            (1_000_000_000, "1s"),
            (15_032_000_001, "15.032000001s"),
            (60_500_000_000, "1m0.5s"),
            (3_603_200_000_000, "1h0m3.2s"),
        ] {
            assert_eq!(format_duration(Duration::from_nanos(nanos)), expected);
        }
    }

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
