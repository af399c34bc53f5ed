//! What the tables of all kinds share.

use jiff::Timestamp;
use serde_json::{Value, json};

/// A column of the server-side Table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// `string`, `integer`, `date`, ...
    pub kind: &'static str,
    /// `name` for the first column, else mostly empty.
    pub format: &'static str,
    /// For `kubectl explain`-minded clients.
    pub description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    /// What stands in it.
    pub cell: Cell,
}

/// Where a cell of a Table comes from.
#[derive(Debug, Clone, Copy)]
pub enum Cell {
    /// The kind makes its rows as a whole ([`super::Kind::row`]).
    Row,
    /// What stands at this JSON pointer, else the zero of the column's type.
    At(&'static str),
    /// The text at this JSON pointer, else `<none>`.
    OrNone(&'static str),
    /// How many elements stand at this JSON pointer.
    Count(&'static str),
    /// How long ago the object was created.
    Age,
    /// What this makes of the object, at this time.
    Of(fn(&Value, Timestamp) -> Value),
}

impl Column {
    /// The same, shown with `-o wide` only.
    pub(crate) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    pub(crate) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self.cell {
            Cell::Row => Value::Null,
            Cell::At(pointer) => match (object.pointer(pointer), self.kind) {
                (Some(value), _) if !value.is_null() => value.clone(),
                (_, "integer") => json!(0),
                (_, "boolean") => json!(false),
                _ => json!(""),
            },
            Cell::OrNone(pointer) => {
                let text = object.pointer(pointer).and_then(Value::as_str).filter(|t| !t.is_empty());
                json!(text.unwrap_or("<none>"))
            }
            Cell::Count(pointer) => json!(match object.pointer(pointer) {
                Some(Value::Array(list)) => list.len(),
                Some(Value::Object(map)) => map.len(),
                _ => 0,
            }),
            Cell::Age => age_cell(object, now),
            Cell::Of(cell) => cell(object, now),
        }
    }
}

/// A column that is always shown, of a kind that makes its rows as a whole.
pub(crate) const fn column(name: &'static str, kind: &'static str, priority: i32) -> Column {
    Column { name, kind, format: "", description: "", priority, cell: Cell::Row }
}

/// A column of text.
pub(crate) const fn text(name: &'static str, cell: Cell) -> Column {
    Column { cell, ..column(name, "string", 0) }
}

/// A column of numbers.
pub(crate) const fn integer(name: &'static str, cell: Cell) -> Column {
    Column { cell, ..column(name, "integer", 0) }
}

/// A column of flags.
pub(crate) const fn boolean(name: &'static str, cell: Cell) -> Column {
    Column { cell, ..column(name, "boolean", 0) }
}

/// The first column of most kinds.
pub(crate) const NAME: Column = Column { format: "name", ..text("Name", Cell::At("/metadata/name")) };
/// How long the object has been there.
pub(crate) const AGE: Column = text("Age", Cell::Age);

/// The columns of kinds that have nothing of their own to show.
pub(crate) const NAME_AND_AGE: &[Column] = &[NAME, AGE];
/// What upstream shows of kinds for which it has no columns at all.
pub(crate) const NAME_AND_CREATION: &[Column] =
    &[NAME, Column { cell: Cell::At("/metadata/creationTimestamp"), ..column("Created At", "date", 0) }];

/// Text, or `<none>`.
pub(crate) fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

/// `metadata.name`.
pub(crate) fn name_cell(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

/// How long ago the object was created.
pub(crate) fn age_cell(object: &Value, now: Timestamp) -> Value {
    json!(age(object["metadata"]["creationTimestamp"].as_str(), now))
}

/// How long ago a moment was.
pub(crate) fn age(since: Option<&str>, now: Timestamp) -> String {
    let since = since.and_then(|s| s.parse::<Timestamp>().ok());
    since.map_or_else(|| "<unknown>".to_owned(), |since| duration(now.duration_since(since).as_secs()))
}

/// So many seconds, as upstream's `duration.HumanDuration` writes them.
pub(crate) fn duration(seconds: i64) -> String {
    let s = seconds.max(0);
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
