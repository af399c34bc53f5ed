//! What the tables of all kinds share.

use super::Column;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A column that is always shown.
pub(crate) const fn column(name: &'static str, kind: &'static str, priority: i32) -> Column {
    Column { name, kind, format: "", description: "", priority }
}

/// The columns of kinds that have nothing of their own to show.
pub(crate) const NAME_AND_AGE: &[Column] =
    &[Column { format: "name", ..column("Name", "string", 0) }, column("Age", "string", 0)];

/// `metadata.name`.
pub(crate) fn name_cell(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

/// How long ago the object was created.
pub(crate) fn age_cell(object: &Value, now: Timestamp) -> Value {
    json!(age(object["metadata"]["creationTimestamp"].as_str(), now))
}

/// How long ago a moment was, as upstream's `duration.HumanDuration` writes it.
pub(crate) fn age(since: Option<&str>, now: Timestamp) -> String {
    let Some(since) = since.and_then(|s| s.parse::<Timestamp>().ok()) else { return "<unknown>".to_owned() };
    let s = now.duration_since(since).as_secs().max(0);
    let (m, h, d, y) = (s / 60, s / 3600, s / 86_400, s / 31_536_000);
    match s {
        0..120 => format!("{s}s"),
        120..600 => match s % 60 {
            0 => format!("{m}m"),
            rest => format!("{m}m{rest}s"),
        },
        600..10_800 => format!("{m}m"),
        10_800..28_800 => match m % 60 {
            0 => format!("{h}h"),
            rest => format!("{h}h{rest}m"),
        },
        28_800..172_800 => format!("{h}h"),
        172_800..691_200 => match h % 24 {
            0 => format!("{d}d"),
            rest => format!("{d}d{rest}h"),
        },
        691_200..63_072_000 => format!("{d}d"),
        63_072_000..252_288_000 => match d % 365 {
            0 => format!("{y}y"),
            rest => format!("{y}y{rest}d"),
        },
        _ => format!("{y}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: i64, expected: &str) {
        let since = Timestamp::UNIX_EPOCH;
        let now = Timestamp::from_second(seconds).unwrap();
        assert_eq!(age(Some(&since.to_string()), now), expected);
    }

    #[test]
    fn ages_are_written_as_upstream_writes_them() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (600, "10m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
        ] {
            check(seconds, expected);
        }
    }
}
