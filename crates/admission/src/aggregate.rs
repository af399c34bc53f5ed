//! Several errors as one (`utilerrors.Aggregate`).

use std::{error::Error, fmt};

/// At least one error. A single one is formatted as is, several in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate<E>(Vec<E>);

impl<E> Aggregate<E> {
    /// Returns an error unless the list is empty.
    pub(crate) fn check(errors: Vec<E>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }
}

impl<E: fmt::Display> fmt::Display for Aggregate<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(E::to_string).collect();
        match texts.as_slice() {
            [one] => f.write_str(one),
            texts => write!(f, "[{}]", texts.join(", ")),
        }
    }
}

impl<E: Error> Error for Aggregate<E> {}
