//! `format`: what a text must look like. Formats that are not known are not checked, as upstream does.

use crate::pattern_of;
use base64::{Engine, engine::general_purpose::STANDARD};
use expr::pattern::Pattern;
use serde_json::Value;
use std::{collections::BTreeSet, net::IpAddr, sync::LazyLock};

/// Formats that are patterns.
static PATTERNS: LazyLock<Vec<(&str, Pattern)>> = LazyLock::new(|| {
    let uuid = |version: &str, variant: &str| {
        format!("(?i)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}-?{variant}-?[0-9a-f]{{12}}$")
    };
    let (any, variant) = ("[0-9a-f]{4}", "[89ab][0-9a-f]{3}");
    let all = [
        ("bsonobjectid", "^[0-9a-fA-F]{24}$".to_owned()),
        ("uuid", uuid(any, any)),
        ("uuid3", uuid("3[0-9a-f]{3}", any)),
        ("uuid4", uuid("4[0-9a-f]{3}", variant)),
        ("uuid5", uuid("5[0-9a-f]{3}", variant)),
        ("ssn", r"^\d{3}[- ]?\d{2}[- ]?\d{4}$".to_owned()),
        ("hexcolor", "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$".to_owned()),
        ("mac", "^[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}([:-][0-9a-fA-F]{2}){0,2}$".to_owned()),
        (
            "rgbcolor",
            r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$".to_owned(),
        ),
        (
            "duration",
            r"^([+-]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)|\d+\s*(ns|nanos?|nanoseconds?|us|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hr|hours?|d|days?|w|wk|weeks?))$".to_owned(),
        ),
        ("email", r"^[^\s@]+@[^\s@]+$|<[^\s@]+@[^\s@]+>$".to_owned()),
    ];
    all.into_iter().filter_map(|(name, pattern)| Some((name, pattern_of(&pattern).ok()?))).collect()
});

/// What follows the day, in small letters.
static TIME: LazyLock<Option<Pattern>> =
    LazyLock::new(|| pattern_of("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok());

/// All formats of texts that are known (`kube-openapi/pkg/validation/strfmt`, and Kubernetes' own), without dashes.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// The formats of texts in a schema that nobody knows, and so nobody checks.
#[must_use]
pub fn unrecognized_formats(schema: &Value) -> BTreeSet<String> {
    let own = schema["format"].as_str().filter(|format| !format.is_empty() && schema["type"] == "string");
    let own = own.filter(|format| !KNOWN.contains(&format.replace('-', "").as_str())).map(str::to_owned);
    let below = schema["properties"].as_object().into_iter().flat_map(serde_json::Map::values);
    let below = below.chain(schema.get("items")).chain(schema.get("additionalProperties"));
    below.flat_map(unrecognized_formats).chain(own).collect()
}

/// Whether a text is of this format.
pub(crate) fn holds(format: &str, text: &str) -> bool {
    // Upstream takes names of formats with and without dashes.
    let name = format.replace('-', "").to_lowercase();
    match name.as_str() {
        "byte" => STANDARD.decode(text.chars().filter(|c| !c.is_whitespace()).collect::<String>()).is_ok(),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "ipv4" => matches!(text.parse(), Ok(IpAddr::V4(_))),
        "ipv6" => matches!(text.parse(), Ok(IpAddr::V6(_))),
        "cidr" => is_cidr(text),
        "hostname" => text.len() < 256 && text.trim_end_matches('.').split('.').all(is_label),
        "uri" => is_uri(text),
        name => PATTERNS.iter().find(|(known, _)| *known == name).is_none_or(|(_, pattern)| pattern.is_match(text)),
    }
}

/// `strfmt.IsDateTime`, which knows offsets that there are not.
fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (day, time) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let up_to = |from: usize, most: &str| time.get(from..from + 2).is_some_and(|number| number <= most);
    is_date(day)
        && TIME.as_ref().is_some_and(|pattern| pattern.is_match(time))
        && up_to(0, "23")
        && up_to(3, "59")
        && up_to(6, "59")
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && jiff::civil::Date::strptime("%Y-%m-%d", text).is_ok()
}

/// An address and the length of its prefix.
fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.bytes().all(|b| b.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|length| length <= most)
}

fn is_label(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    !label.is_empty()
        && label.len() < 64
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// What Go's `url.ParseRequestURI` takes: an absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    if text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        return false;
    }
    let scheme = |s: &str| {
        s.starts_with(|c: char| c.is_ascii_alphabetic())
            && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    text.starts_with('/') || text.split_once(':').is_some_and(|(s, rest)| scheme(s) && !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_nobody_knows_are_found() {
        let schema = serde_json::json!({"type": "object", "properties": {
            "a": {"type": "string", "format": "foo"}, "b": {"type": "integer", "format": "bar"},
            "c": {"type": "array", "items": {"type": "string", "format": "date-time"}},
            "d": {"type": "object", "additionalProperties": {"type": "string", "format": "baz"}}}});
        assert_eq!(Vec::from_iter(unrecognized_formats(&schema)), ["baz", "foo"]);
    }

    #[test]
    fn formats_say_what_a_text_looks_like() {
        for (format, good, bad) in [
            ("date-time", "2026-01-02T03:04:05Z", "yesterday"),
            ("date", "2026-01-02", "2026-13-02"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "fd00::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("byte", "aGVsbG8=", "a"),
            ("hostname", "a.example.com", "-a"),
            ("uri", "https://example.com/a", "example"),
            ("duration", "1h30m", "soon"),
            ("email", "a@example.com", "a"),
            ("mac", "00:00:5e:00:53:01", "00:00"),
        ] {
            assert!(holds(format, good), "{format} {good}");
            assert!(!holds(format, bad), "{format} {bad}");
        }
        for good in ["9999-12-31T23:59:59Z", "2026-01-02t03:04:05.5z", "2026-01-02T03:04:05+99:00"] {
            assert!(holds("date-time", good), "{good}");
        }
        for bad in ["2026-01-02 03:04:05Z", "2026-01-02T24:00:00Z", "2026-01-02T03:04:05", "2026-02-30T03:04:05Z"] {
            assert!(!holds("date-time", bad), "{bad}");
        }
        assert!(holds("of-my-own", "anything"));
    }
}
