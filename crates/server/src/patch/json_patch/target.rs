//! The target of a JSON patch operation: a field of an object, or an index of an array.

use super::{Refusal, budget::Budget};
use serde_json::{Map, Value};
use std::num::IntErrorKind;

/// A target, which may be empty; its parent exists.
pub(super) enum Target<'a> {
    Field(&'a mut Map<String, Value>, String),
    Index(&'a mut Vec<Value>, String),
}

impl<'a> Target<'a> {
    /// Finds the target of a path (a JSON pointer). The part before the first slash is ignored.
    pub(super) fn find(document: &'a mut Value, path: &str) -> Option<Self> {
        let (_, path) = path.split_once('/')?;
        let (parent, key) = path.rsplit_once('/').map_or((None, path), |(parent, key)| (Some(parent), key));
        let mut value = document;
        for part in parent.into_iter().flat_map(|parent| parent.split('/')) {
            value = match value {
                Value::Object(fields) => fields.get_mut(&unescape(part))?,
                Value::Array(items) => {
                    let at = index(&unescape(part), items.len()).ok()?;
                    items.get_mut(at)?
                }
                _ => return None,
            };
        }
        match value {
            Value::Object(fields) => Some(Self::Field(fields, unescape(key))),
            Value::Array(items) => Some(Self::Index(items, unescape(key))),
            _ => None,
        }
    }

    pub(super) fn key(&self) -> &str {
        match self {
            Self::Field(_, key) | Self::Index(_, key) => key,
        }
    }

    /// Returns the value. An absent field is null.
    pub(super) fn get(&self) -> Result<&Value, Refusal> {
        match self {
            Self::Field(fields, key) => Ok(fields.get(key).unwrap_or(&Value::Null)),
            Self::Index(items, key) => Ok(&items[index(key, items.len())?]),
        }
    }

    /// Inserts a value; in an array, before the element at the index.
    pub(super) fn add(self, value: Value, budget: &mut Budget) -> Result<(), Refusal> {
        match self {
            Self::Field(fields, key) => drop(fields.insert(key, value)),
            Self::Index(items, key) if key == "-" => items.push(value),
            Self::Index(items, key) => {
                let at =
                    parse_index(&key).map_err(|why| format!("value was not a proper array index: '{key}': {why}"))?;
                // The end is a valid index, too.
                let at = check_index(at, items.len() + 1)?;
                budget.shift(items.len() - at)?;
                items.insert(at, value);
            }
        }
        Ok(())
    }

    /// Replaces the value.
    pub(super) fn set(self, value: Value) -> Result<(), Refusal> {
        match self {
            Self::Field(fields, key) => drop(fields.insert(key, value)),
            Self::Index(items, key) => {
                let at = index(&key, items.len())?;
                items[at] = value;
            }
        }
        Ok(())
    }

    /// Removes the value.
    pub(super) fn remove(self, budget: &mut Budget) -> Result<Value, Refusal> {
        match self {
            Self::Field(fields, key) => {
                let missing = || format!("Unable to remove nonexistent key: {key}: missing value");
                fields.remove(&key).ok_or_else(missing)
            }
            Self::Index(items, key) => {
                let at = index(&key, items.len())?;
                budget.shift(items.len() - at - 1)?;
                Ok(items.remove(at))
            }
        }
    }
}

/// Unescapes a part of a JSON pointer: `~1` is a slash, `~0` a tilde.
fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn index(key: &str, length: usize) -> Result<usize, Refusal> {
    check_index(parse_index(key)?, length)
}

/// Go's `strconv.Atoi`.
fn parse_index(key: &str) -> Result<i64, Refusal> {
    key.parse().map_err(|error: std::num::ParseIntError| {
        let what = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {key:?}: {what}")
    })
}

/// Checks an index against a length; a negative index counts from the end.
fn check_index(at: i64, length: usize) -> Result<usize, Refusal> {
    let from_start =
        if at < 0 { i64::try_from(length).ok().and_then(|length| length.checked_add(at)) } else { Some(at) };
    let found = from_start.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < length);
    found.ok_or_else(|| format!("Unable to access invalid index: {at}: invalid index referenced"))
}
