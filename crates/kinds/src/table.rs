//! Columns and cells of server-side Tables.

use jiff::Timestamp;
use serde_json::{Value, json};

/// A column of the server-side Table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// OpenAPI type: `string`, `integer`, `date`, and so on.
    pub kind: &'static str,
    /// OpenAPI format: `name` for the first column, mostly empty for others.
    pub format: &'static str,
    /// Human-readable description.
    pub description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    /// Source of its cells.
    pub cell: Cell,
}

/// Source of a Table cell.
#[derive(Debug, Clone, Copy)]
pub enum Cell {
    /// [`super::Kind::row`] builds whole rows.
    Row,
    /// The value at a JSON pointer, or the zero value of the column's type.
    Pointer(&'static str),
    /// The string at a JSON pointer, or `<none>`.
    OrNone(&'static str),
    /// The number of elements at a JSON pointer.
    Count(&'static str),
    /// Time since the creation of the object.
    Age,
    /// The result of a function of the object and the current time.
    Computed(fn(&Value, Timestamp) -> Value),
}

impl Column {
    /// Returns the column with priority 1: shown only with `-o wide`.
    pub(crate) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    pub(crate) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self.cell {
            Cell::Row => Value::Null,
            Cell::Pointer(pointer) => match (object.pointer(pointer), self.kind) {
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
            Cell::Computed(cell) => cell(object, now),
        }
    }
}

/// Column of a kind that builds whole rows.
pub(crate) const fn column(name: &'static str, kind: &'static str, priority: i32) -> Column {
    Column { name, kind, format: "", description: "", priority, cell: Cell::Row }
}

/// Column of strings.
pub(crate) const fn text(name: &'static str, cell: Cell) -> Column {
    Column { cell, ..column(name, "string", 0) }
}

/// Column of integers.
pub const fn integer(name: &'static str, cell: Cell) -> Column {
    Column { cell, ..column(name, "integer", 0) }
}

/// Column of booleans.
pub(crate) const fn boolean(name: &'static str, cell: Cell) -> Column {
    Column { cell, ..column(name, "boolean", 0) }
}

/// The `Name` column, first for most kinds.
pub const NAME: Column = Column { format: "name", ..text("Name", Cell::Pointer("/metadata/name")) };
/// The `Age` column.
pub const AGE: Column = text("Age", Cell::Age);

/// Columns of kinds without columns of their own.
pub(crate) const NAME_AND_AGE: &[Column] = &[NAME, AGE];
/// Columns of kinds that have no printer upstream (`rest.NewDefaultTableConvertor`).
pub(crate) const NAME_AND_CREATION: &[Column] =
    &[NAME, Column { cell: Cell::Pointer("/metadata/creationTimestamp"), ..column("Created At", "date", 0) }];

/// Returns a string, or `<none>` if it is empty.
pub(crate) fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

/// Returns `metadata.name`.
pub(crate) fn name_cell(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

/// Returns the time since the creation of the object (`translateTimestampSince`).
pub(crate) fn age_cell(object: &Value, now: Timestamp) -> Value {
    json!(age(object["metadata"]["creationTimestamp"].as_str(), now))
}

/// Formats the time since a timestamp, or returns `<unknown>`.
pub(crate) fn age(since: Option<&str>, now: Timestamp) -> String {
    let since = since.and_then(|s| s.parse::<Timestamp>().ok());
    since.map_or_else(|| "<unknown>".to_owned(), |since| human_duration(now.duration_since(since).as_secs()))
}

/// Formats seconds like upstream's `duration.HumanDuration`. The crate `humantime` has other units and precision.
pub(crate) fn human_duration(seconds: i64) -> String {
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
    fn age_is_formatted_as_human_duration() {
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
