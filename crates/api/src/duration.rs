//! Durations in the format of Go's `time.Duration`: `1m30s`, `500ms`, `1.5s`.
//!
//! Own code: other libraries accept more, such as days, and other spellings of units, and have other errors.

use jiff::SignedDuration;
use std::time::Duration;

/// Units and their nanoseconds. The letter of microseconds is the micro sign or the Greek letter.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Error for an invalid duration, with the start of Go's message, which the quoted text follows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// The syntax is invalid, or the duration exceeds 292 years.
    #[error("time: invalid duration")]
    Invalid,
    /// A number has no unit.
    #[error("time: missing unit in duration")]
    MissingUnit,
    /// A unit is unknown.
    #[error("time: unknown unit {0:?} in duration")]
    UnknownUnit(String),
}

/// Parses a duration as Go's `time.ParseDuration`, exact to the nanosecond.
///
/// # Errors
/// When the text is no duration, or the duration exceeds 292 years.
pub fn parse_duration(text: &str) -> Result<SignedDuration, ParseDurationError> {
    let invalid = || ParseDurationError::Invalid;
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(ParseDurationError::Invalid);
    }
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(ParseDurationError::Invalid);
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(ParseDurationError::MissingUnit);
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, nanos) = known.ok_or_else(|| ParseDurationError::UnknownUnit(unit.to_owned()))?;
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let part = whole.checked_mul(*nanos).and_then(|part| part.checked_add(fraction_nanos(fraction, *nanos)));
        sum = part.and_then(|part| part.checked_add(sum)).ok_or_else(invalid)?;
        rest = after;
    }
    match i64::try_from(sum) {
        Ok(nanos) => Ok(SignedDuration::from_nanos(if is_negative { -nanos } else { nanos })),
        // The smallest duration has no positive counterpart.
        Err(_) if is_negative && sum == i64::MIN.unsigned_abs() => Ok(SignedDuration::from_nanos(i64::MIN)),
        Err(_) => Err(ParseDurationError::Invalid),
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns a decimal fraction of a unit, in nanoseconds. It is computed with floating point, as in Go: a third of an hour
/// with 19 digits is 20 minutes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and less than the unit")]
fn fraction_nanos(digits: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes().map(|digit| u64::from(digit - b'0')) {
        // Go drops the digits beyond 63 bits.
        match number.checked_mul(10).map(|number| number + digit) {
            Some(longer) if longer <= 1 << 63 => number = longer,
            _ => break,
        }
        scale *= 10.0;
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

/// Parses a duration as [`parse_duration`]. A negative one becomes zero.
#[must_use]
pub fn parse_non_negative(text: &str) -> Option<Duration> {
    parse_duration(text).ok().map(|parsed| Duration::try_from(parsed).unwrap_or(Duration::ZERO))
}

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

    #[test]
    fn duration_is_parsed_as_in_go() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("34s", 34_000_000_000),
            ("1m30s", 90_000_000_000),
            ("+1.5h", 5_400_000_000_000),
            ("-500ms", -500_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("1.0000000019999999999999s", 1_000_000_001),
            ("7us8\u{b5}s9\u{3bc}s1ns", 24_001),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse_duration(text), Ok(SignedDuration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn invalid_duration_has_the_error_of_go() {
        let unknown = |unit: &str| ParseDurationError::UnknownUnit(unit.to_owned());
        for (text, error) in [
            ("", ParseDurationError::Invalid),
            ("-", ParseDurationError::Invalid),
            ("--1s", ParseDurationError::Invalid),
            ("s", ParseDurationError::Invalid),
            (".s", ParseDurationError::Invalid),
            ("\u{661}s", ParseDurationError::Invalid),
            ("9223372036854775808ns", ParseDurationError::Invalid),
            ("99999999999999999999999h", ParseDurationError::Invalid),
            ("5", ParseDurationError::MissingUnit),
            ("1s2", ParseDurationError::MissingUnit),
            ("1.2.3s", ParseDurationError::MissingUnit),
            ("1x", unknown("x")),
            ("1 s", unknown(" s")),
        ] {
            assert_eq!(parse_duration(text), Err(error), "{text}");
        }
    }

    #[track_caller]
    fn check_parse(text: &str, millis: Option<u128>) {
        assert_eq!(parse_non_negative(text).map(|d| d.as_millis()), millis, "{text}");
    }

    #[test]
    fn negative_duration_is_parsed_as_zero() {
        check_parse("34s", Some(34_000));
        check_parse("1m30s", Some(90_000));
        check_parse("1.5s", Some(1_500));
        check_parse("500ms", Some(500));
        check_parse("0", Some(0));
        check_parse("+1s", Some(1000));
        check_parse("-1s", Some(0));
        for bad in ["", "-", "--1s", "5", "s", "1x", "1s2", "١s", "999999999999999999999999h"] {
            check_parse(bad, None);
        }
    }
}
