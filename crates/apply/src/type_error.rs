//! Validation errors of typed values, with their paths.

use crate::list_item_key::ListItemKey;
use std::fmt;

/// The errors of a value that does not match its type, with upstream's messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeError {
    errors: Vec<(String, String)>,
    bytes: usize,
}

/// Maximum size of the errors of one value, in bytes; further errors are dropped.
const MAX_BYTES: usize = 1 << 20;

impl TypeError {
    /// Adds an error at a path.
    pub(crate) fn add(&mut self, path: &[PathStep<'_>], message: impl Into<String>) {
        if self.bytes > MAX_BYTES {
            return;
        }
        let (path, message): (String, String) = (path.iter().map(ToString::to_string).collect(), message.into());
        self.bytes += path.len() + message.len();
        self.errors.push((path, message));
    }

    pub(crate) fn result(self) -> Result<(), Self> {
        if self.errors.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(path, message): &(String, String)| {
            if path.is_empty() { message.clone() } else { format!("{path}: {message}") }
        };
        match self.errors.as_slice() {
            [one] => f.write_str(&line(one)),
            all => {
                f.write_str("errors:")?;
                all.iter().try_for_each(|e| write!(f, "\n  {}", line(e)))
            }
        }
    }
}

impl std::error::Error for TypeError {}

/// Step of the path of an error; formatted only if there is an error.
#[derive(Debug, Clone)]
pub(crate) enum PathStep<'a> {
    Field(&'a str),
    Item(ListItemKey<'a>),
    Index(usize),
}

impl fmt::Display for PathStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Item(item) => item.fmt(f),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}
