//! Errors of walks over typed values, with their paths.

use crate::identity::Identity;
use std::fmt;

/// In what ways a value is not of its type; in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeError {
    errors: Vec<(String, String)>,
    bytes: usize,
}

/// How many bytes the errors of one value may take; further ones are left out.
const MAX_TEXT: usize = 1 << 20;

impl TypeError {
    /// Notes what is wrong at a path.
    pub(crate) fn add(&mut self, path: &[Step<'_>], why: impl Into<String>) {
        if self.bytes > MAX_TEXT {
            return;
        }
        let (path, why): (String, String) = (path.iter().map(ToString::to_string).collect(), why.into());
        self.bytes += path.len() + why.len();
        self.errors.push((path, why));
    }

    pub(crate) fn result(self) -> Result<(), Self> {
        if self.errors.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line =
            |(path, why): &(String, String)| if path.is_empty() { why.clone() } else { format!("{path}: {why}") };
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

/// A step of the path of an error; made into text only when there is one.
#[derive(Debug, Clone)]
pub(crate) enum Step<'a> {
    Field(&'a str),
    Item(Identity<'a>),
    Place(usize),
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Item(item) => item.fmt(f),
            Self::Place(place) => write!(f, "[{place}]"),
        }
    }
}
