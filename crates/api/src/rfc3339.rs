//! Parsing of RFC 3339 times with Go's grammar and error messages (`metav1.Time`, `metav1.MicroTime`).

use jiff::Timestamp;

/// Precision of a time format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Seconds; a fraction is accepted and dropped.
    Seconds,
    /// Microseconds: exactly six digits.
    Microseconds,
}

impl Precision {
    fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Microseconds => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Error for an invalid time, with Go's message (`time.ParseError`).
#[derive(Debug, Clone, thiserror::Error)]
pub enum ParseTimeError {
    /// An element of the layout is missing.
    #[error("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")]
    Element {
        /// The whole text.
        text: String,
        /// The layout.
        layout: &'static str,
        /// The rest of the text.
        rest: String,
        /// The missing element.
        element: &'static str,
    },
    /// Text after the time.
    #[error("parsing time {text:?}: extra text: {extra:?}")]
    ExtraText {
        /// The whole text.
        text: String,
        /// The extra text.
        extra: String,
    },
    /// A number is out of range.
    #[error("parsing time {text:?}: {field} out of range")]
    OutOfRange {
        /// The whole text.
        text: String,
        /// `month`, `day`, `hour`, ...
        field: &'static str,
    },
    /// The time is too late for `jiff`.
    #[error("parsing time {0:?}: times after 9999-12-30T22:00:00Z are not supported")]
    TooLate(String),
    /// The time is unsupported by `jiff` for another reason.
    #[error("parsing time {text:?}: {source}")]
    Unsupported {
        /// The whole text.
        text: String,
        /// The reason.
        source: jiff::Error,
    },
}

/// Parses a time (`time.Parse`).
///
/// # Errors
/// For an invalid time. Times after 9999-12-30T22:00:00Z, the maximum of `jiff`, are rejected.
pub fn parse(text: &str, precision: Precision) -> Result<Timestamp, ParseTimeError> {
    let wrong = |rest: &str, element: &'static str| {
        let (text, rest) = (text.to_owned(), rest.to_owned());
        ParseTimeError::Element { text, layout: precision.layout(), rest, element }
    };
    let mut rest = text;
    let mut numbers = [0_u32; 6];
    let elements = [("2006", 4), ("01", 2), ("02", 2), ("15", 2), ("04", 2), ("05", 2)];
    for (i, ((element, digits), before)) in elements.into_iter().zip(["", "-", "-", "T", ":", ":"]).enumerate() {
        rest = rest.strip_prefix(before).ok_or_else(|| wrong(rest, before))?;
        (numbers[i], rest) = parse_number(rest, digits).ok_or_else(|| wrong(rest, element))?;
    }
    rest = match precision {
        Precision::Seconds => skip_fraction(rest),
        Precision::Microseconds => skip_microseconds(rest).ok_or_else(|| wrong(rest, ".000000"))?,
    };
    let extra = skip_zone(rest).ok_or_else(|| wrong(rest, "Z07:00"))?;
    if !extra.is_empty() {
        return Err(ParseTimeError::ExtraText { text: text.to_owned(), extra: extra.to_owned() });
    }
    let [_, month, _, hour, minute, second] = numbers;
    let within =
        [("month", (1..=12).contains(&month)), ("hour", hour < 24), ("minute", minute < 60), ("second", second < 60)];
    if let Some((field, _)) = within.into_iter().find(|(_, is_right)| !is_right) {
        return Err(ParseTimeError::OutOfRange { text: text.to_owned(), field });
    }
    // Go also accepts a comma.
    text.replace(',', ".").parse().map_err(|source: jiff::Error| {
        let text = text.to_owned();
        if numbers[0] == 9999 && month == 12 && numbers[2] >= 30 && numbers[2] < 32 {
            ParseTimeError::TooLate(text)
        } else if source.to_string().contains("day") {
            ParseTimeError::OutOfRange { text, field: "day" }
        } else {
            ParseTimeError::Unsupported { text, source }
        }
    })
}

fn parse_number(text: &str, digits: usize) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let number = if number.bytes().all(|b| b.is_ascii_digit()) { number.parse().ok()? } else { return None };
    Some((number, rest))
}

/// Skips an optional fraction of seconds.
fn skip_fraction(text: &str) -> &str {
    let Some(after) = text.strip_prefix(['.', ',']) else { return text };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() < after.len() { rest } else { text }
}

fn skip_microseconds(text: &str) -> Option<&str> {
    text.strip_prefix(['.', ',']).and_then(|after| parse_number(after, 6)).map(|(_, rest)| rest)
}

/// Skips the time zone: `Z`, or hours and minutes.
fn skip_zone(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix('Z') {
        return Some(rest);
    }
    let (hours, rest) = parse_number(text.strip_prefix(['+', '-'])?, 2)?;
    let (minutes, rest) = parse_number(rest.strip_prefix(':')?, 2)?;
    (hours <= 24 && minutes < 60).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(precision: Precision, text: &str, expected: Result<&str, &str>) {
        let read = parse(text, precision).map(|time| time.to_string());
        let prefix = format!("parsing time {text:?} as {:?}: ", precision.layout());
        let short = |error: ParseTimeError| {
            error.to_string().replace(&prefix, "").replace(&format!("parsing time {text:?}: "), "")
        };
        assert_eq!(read.map_err(short), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
    }

    #[test]
    fn time_is_parsed_as_go() {
        let check = |text, expected| check(Precision::Seconds, text, expected);
        check("2026-01-02T03:04:05Z", Ok("2026-01-02T03:04:05Z"));
        check("2026-01-02T03:04:05.123456789Z", Ok("2026-01-02T03:04:05.123456789Z"));
        check("2026-01-02T03:04:05,5Z", Ok("2026-01-02T03:04:05.5Z"));
        check("2026-01-02T03:04:05+02:00", Ok("2026-01-02T01:04:05Z"));
        check("2024-02-29T00:00:00-12:30", Ok("2024-02-29T12:30:00Z"));
        check("0001-01-01T00:00:00Z", Ok("0001-01-01T00:00:00Z"));
        for (text, message) in [
            ("", "cannot parse \"\" as \"2006\""),
            ("soon", "cannot parse \"soon\" as \"2006\""),
            ("+002026-01-01T00:00:00Z", "cannot parse \"+002026-01-01T00:00:00Z\" as \"2006\""),
            ("20260101T000000Z", "cannot parse \"0101T000000Z\" as \"-\""),
            ("2026-01-01 00:00:00Z", "cannot parse \" 00:00:00Z\" as \"T\""),
            ("2026-01-01t00:00:00z", "cannot parse \"t00:00:00z\" as \"T\""),
            ("2026-01-01T00:00Z", "cannot parse \"Z\" as \":\""),
            ("2026-01-01T00:00:00", "cannot parse \"\" as \"Z07:00\""),
            ("2026-01-01T00:00:00z", "cannot parse \"z\" as \"Z07:00\""),
            ("2026-01-01T00:00:00.Z", "cannot parse \".Z\" as \"Z07:00\""),
            ("2026-01-01T00:00:00+25:00", "cannot parse \"+25:00\" as \"Z07:00\""),
            ("2026-01-01T00:00:00+0200", "cannot parse \"+0200\" as \"Z07:00\""),
            ("2026-01-01T00:00:00Z[UTC]", "extra text: \"[UTC]\""),
            ("2026-13-01T00:00:00Z", "month out of range"),
            ("2026-02-29T00:00:00Z", "day out of range"),
            ("2026-01-00T00:00:00Z", "day out of range"),
            ("2026-01-01T24:00:00Z", "hour out of range"),
            ("2026-01-01T00:60:00Z", "minute out of range"),
            ("2026-06-30T23:59:60Z", "second out of range"),
            ("9999-12-31T23:59:59Z", "times after 9999-12-30T22:00:00Z are not supported"),
            ("２０２６-01-01T00:00:00Z", "cannot parse \"２０２６-01-01T00:00:00Z\" as \"2006\""),
        ] {
            check(text, Err(message));
        }
    }

    #[test]
    fn microseconds_require_six_digits() {
        let check = |text, expected| check(Precision::Microseconds, text, expected);
        check("2026-01-01T00:00:00.123456Z", Ok("2026-01-01T00:00:00.123456Z"));
        check("2026-01-01T00:00:00.000000+01:00", Ok("2025-12-31T23:00:00Z"));
        check("2026-01-01T00:00:00Z", Err("cannot parse \"Z\" as \".000000\""));
        check("2026-01-01T00:00:00.12345Z", Err("cannot parse \".12345Z\" as \".000000\""));
        check("2026-01-01T00:00:00.123456789Z", Err("cannot parse \"789Z\" as \"Z07:00\""));
    }
}
