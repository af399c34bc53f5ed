//! Formatting of durations as Go's `time.Duration`: `1m30s`, `500ms`, `1.5s`.

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
}
