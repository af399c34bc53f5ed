//! Durations in Go's format: `10s`, `1m30s`, `1.5h`, `100ms`.

pub(super) use api::duration::format_duration as text;
use serde::{Deserialize, Deserializer, Serializer};
use std::time::Duration;

/// Parses a duration like Go's `time.ParseDuration`. Returns `None` for a negative one.
pub(super) fn parse(text: &str) -> Option<Duration> {
    api::duration::parse_duration(text).ok()?.try_into().ok()
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| serde::de::Error::custom(format!("time: invalid duration {text:?}")))
}

pub(crate) fn deserialize_some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    deserialize(deserializer).map(Some)
}

pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*duration))
}

pub(super) fn serialize_some<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => serialize(duration, serializer),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn deserialize_nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let read =
        |text: String| parse(&text).ok_or_else(|| serde::de::Error::custom(format!("time: invalid duration {text:?}")));
    text.map(read).transpose()
}

#[cfg(test)]
mod tests {
    use super::{parse, text};
    use std::time::Duration;

    #[test]
    fn durations_are_formatted_like_in_go() {
        for (ms, expected) in [(0, "0s"), (100, "100ms"), (1500, "1.5s"), (90_000, "1m30s"), (3_600_000, "1h0m0s")] {
            assert_eq!(text(Duration::from_millis(ms)), expected);
        }
    }

    #[test]
    fn durations_are_parsed_like_in_go() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10s", Some(10_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("100ms", Some(100)),
            ("1h0m0s", Some(3_600_000)),
            ("", None),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1x", None),
        ] {
            assert_eq!(parse(text), expected.map(Duration::from_millis), "{text}");
        }
    }
}
