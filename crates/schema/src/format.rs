//! Validation of `format`. Unknown formats are not validated, as upstream.

use crate::compile_pattern;
use api::{address, names};
use expr::go_regexp::GoRegexp;
use serde_json::Value;
use std::{collections::BTreeSet, sync::LazyLock};

/// Formats that are defined by a pattern.
static PATTERNS: LazyLock<Vec<(&str, GoRegexp)>> = LazyLock::new(|| {
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
        // `net.ParseMAC`: 6, 8 or 20 bytes, in groups of two or four digits.
        ("mac", r"^([0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}((:[0-9a-fA-F]{2}){2}((:[0-9a-fA-F]{2}){12})?)?|[0-9a-fA-F]{2}(-[0-9a-fA-F]{2}){5}((-[0-9a-fA-F]{2}){2}((-[0-9a-fA-F]{2}){12})?)?|[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){2}(\.[0-9a-fA-F]{4}((\.[0-9a-fA-F]{4}){6})?)?)$".to_owned()),
        // The patterns of `govalidator`.
        ("byte", "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$".to_owned()),
        ("creditcard", r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}|6[27][0-9]{14})$".to_owned()),
        ("isbn10", "^(?:[0-9]{9}X|[0-9]{10})$".to_owned()),
        ("isbn13", "^(?:[0-9]{13})$".to_owned()),
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
    all.into_iter().filter_map(|(name, pattern)| Some((name, compile_pattern(&pattern).ok()?))).collect()
});

/// Pattern of the time of a `date-time`, in lower case.
static TIME: LazyLock<Option<GoRegexp>> =
    LazyLock::new(|| compile_pattern("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok());

/// Known string formats (`kube-openapi/pkg/validation/strfmt` and Kubernetes' own), without dashes.
const KNOWN_FORMATS: [&str; 26] = [
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

/// Returns the unknown string formats of a schema, which are not validated.
#[must_use]
pub fn unrecognized_formats(schema: &Value) -> BTreeSet<String> {
    let declared = schema["format"].as_str().filter(|format| !format.is_empty() && schema["type"] == "string");
    let declared =
        declared.filter(|format| !KNOWN_FORMATS.contains(&format.replace('-', "").as_str())).map(str::to_owned);
    let below = schema["properties"].as_object().into_iter().flat_map(serde_json::Map::values);
    let below = below.chain(schema.get("items")).chain(schema.get("additionalProperties"));
    below.flat_map(unrecognized_formats).chain(declared).collect()
}

/// Returns whether a string has a format.
pub(crate) fn matches_format(format: &str, text: &str) -> bool {
    // Upstream accepts format names with and without dashes.
    let name = format.replace('-', "").to_lowercase();
    match name.as_str() {
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "ipv4" => address::ip(text).is_some() && text.contains('.'),
        "ipv6" => address::ip(text).is_some() && text.contains(':'),
        "cidr" => address::cidr(text).is_some(),
        "hostname" => text.len() < 256 && text.trim_end_matches('.').split('.').all(is_label),
        "k8sshortname" => names::dns1123_label(text).is_empty(),
        "k8slongname" => names::dns1123_subdomain(text).is_empty(),
        "uri" => is_uri(text),
        "creditcard" => {
            let digits = strip_separators(text);
            matches_pattern(&name, &digits) && passes_luhn_check(&digits)
        }
        "isbn10" => is_isbn_10(text),
        "isbn13" => is_isbn_13(text),
        "isbn" => is_isbn_10(text) || is_isbn_13(text),
        name => matches_pattern(name, text),
    }
}

/// Returns whether a string matches the pattern of a format; unknown formats match any string.
fn matches_pattern(name: &str, text: &str) -> bool {
    let pattern = PATTERNS.iter().find(|(known, _)| *known == name);
    pattern.is_none_or(|(_, pattern)| pattern.is_match(text))
}

/// Removes spaces and dashes from a number.
fn strip_separators(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

/// Verifies the checksum of the Luhn algorithm.
fn passes_luhn_check(digits: &str) -> bool {
    let numbers = digits.chars().rev().filter_map(|c| c.to_digit(10)).enumerate();
    let sum: u32 = numbers.map(|(i, n)| if i % 2 == 0 { n } else { n * 2 / 10 + n * 2 % 10 }).sum();
    sum.is_multiple_of(10)
}

fn is_isbn_10(text: &str) -> bool {
    let digits = strip_separators(text);
    let weighted = digits.chars().zip(1..).map(|(c, weight)| c.to_digit(10).unwrap_or(10) * weight);
    matches_pattern("isbn10", &digits) && weighted.sum::<u32>().is_multiple_of(11)
}

fn is_isbn_13(text: &str) -> bool {
    let digits = strip_separators(text);
    let weighted = digits.chars().zip([1, 3].into_iter().cycle()).map(|(c, w)| c.to_digit(10).unwrap_or(0) * w);
    matches_pattern("isbn13", &digits) && weighted.sum::<u32>().is_multiple_of(10)
}

/// Validates a `date-time` as `strfmt.IsDateTime`, which accepts offsets that do not exist.
fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (day, time) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let up_to = |from: usize, maximum: &str| time.get(from..from + 2).is_some_and(|number| number <= maximum);
    is_date(day)
        && TIME.as_ref().is_some_and(|pattern| pattern.is_match(time))
        && up_to(0, "23")
        && up_to(3, "59")
        && up_to(6, "59")
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && jiff::civil::Date::strptime("%Y-%m-%d", text).is_ok()
}

fn is_label(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    !label.is_empty()
        && label.len() < 64
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Validates a URI as Go's `url.ParseRequestURI`: an absolute URI or an absolute path.
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
    fn unknown_formats_are_found() {
        let schema = serde_json::json!({"type": "object", "properties": {
            "a": {"type": "string", "format": "foo"}, "b": {"type": "integer", "format": "bar"},
            "c": {"type": "array", "items": {"type": "string", "format": "date-time"}},
            "d": {"type": "object", "additionalProperties": {"type": "string", "format": "baz"}}}});
        assert_eq!(Vec::from_iter(unrecognized_formats(&schema)), ["baz", "foo"]);
    }

    #[test]
    fn format_is_validated_as_upstream() {
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
            ("mac", "0000.5e00.5301", "00:00-5e:00:53:01"),
            ("byte", "aGVsbG8=", ""),
            ("ipv4", "010.0.0.01", "10.0.0"),
            ("cidr", "010.0.0.0/8", "10.0.0.0"),
            ("k8s-short-name", "a-1", "a.b"),
            ("k8s-long-name", "a.b", "A.b"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("isbn10", "3-16-148410-X", "3-16-148410-1"),
            ("isbn13", "978-3-16-148410-0", "978-3-16-148410-1"),
            ("isbn", "978-3-16-148410-0", "3-16-148410-1"),
        ] {
            assert!(matches_format(format, good), "{format} {good}");
            assert!(!matches_format(format, bad), "{format} {bad}");
        }
        for good in ["9999-12-31T23:59:59Z", "2026-01-02t03:04:05.5z", "2026-01-02T03:04:05+99:00"] {
            assert!(matches_format("date-time", good), "{good}");
        }
        for bad in ["2026-01-02 03:04:05Z", "2026-01-02T24:00:00Z", "2026-01-02T03:04:05", "2026-02-30T03:04:05Z"] {
            assert!(!matches_format("date-time", bad), "{bad}");
        }
        assert!(matches_format("of-my-own", "anything"));
    }
}
