//! The target of a JSON patch operation: a field of an object, or an index of an array.

use super::budget::{Budget, BudgetExceeded};
use serde_json::{Map, Value};
use std::num::IntErrorKind;

/// Failed access to a target, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error("value was not a proper array index: '{key}': {source}")]
    NotAnIndex { key: String, source: ParseIndexError },
    #[error(transparent)]
    ParseIndex(#[from] ParseIndexError),
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    IndexOutOfRange(i64),
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    MissingKey(String),
    #[error(transparent)]
    Budget(#[from] BudgetExceeded),
}

/// Error of Go's `strconv.Atoi`.
#[derive(Debug, thiserror::Error)]
#[error("strconv.Atoi: parsing {key:?}: {reason}")]
pub(super) struct ParseIndexError {
    key: String,
    reason: &'static str,
}

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
    pub(super) fn get(&self) -> Result<&Value, TargetError> {
        match self {
            Self::Field(fields, key) => Ok(fields.get(key).unwrap_or(&Value::Null)),
            Self::Index(items, key) => Ok(&items[index(key, items.len())?]),
        }
    }

    /// Inserts a value; in an array, before the element at the index.
    pub(super) fn add(self, value: Value, budget: &mut Budget) -> Result<(), TargetError> {
        match self {
            Self::Field(fields, key) => drop(fields.insert(key, value)),
            Self::Index(items, key) if key == "-" => items.push(value),
            Self::Index(items, key) => {
                let at = parse_index(&key).map_err(|source| TargetError::NotAnIndex { key: key.clone(), source })?;
                // The end is a valid index, too.
                let at = check_index(at, items.len() + 1)?;
                budget.shift(items.len() - at)?;
                items.insert(at, value);
            }
        }
        Ok(())
    }

    /// Replaces the value.
    pub(super) fn set(self, value: Value) -> Result<(), TargetError> {
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
    pub(super) fn remove(self, budget: &mut Budget) -> Result<Value, TargetError> {
        match self {
            Self::Field(fields, key) => fields.remove(&key).ok_or(TargetError::MissingKey(key)),
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

fn index(key: &str, length: usize) -> Result<usize, TargetError> {
    check_index(parse_index(key)?, length)
}

/// Go's `strconv.Atoi`.
fn parse_index(key: &str) -> Result<i64, ParseIndexError> {
    key.parse().map_err(|error: std::num::ParseIntError| {
        let reason = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        ParseIndexError { key: key.to_owned(), reason }
    })
}

/// Checks an index against a length; a negative index counts from the end.
fn check_index(at: i64, length: usize) -> Result<usize, TargetError> {
    let from_start =
        if at < 0 { i64::try_from(length).ok().and_then(|length| length.checked_add(at)) } else { Some(at) };
    let found = from_start.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < length);
    found.ok_or(TargetError::IndexOutOfRange(at))
}
