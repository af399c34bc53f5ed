//! Field paths (`fieldpath.Path`).

use crate::path_element::PathElement;
use std::{fmt, ops::Deref};

/// Path from the root of an object to a field.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl Path {
    /// Creates a path of field names.
    #[must_use]
    pub fn of_fields(names: &[&str]) -> Self {
        Self(names.iter().map(|n| PathElement::field(n)).collect())
    }
}

impl Deref for Path {
    type Target = [PathElement];

    fn deref(&self) -> &[PathElement] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|e| write!(f, "{e}"))
    }
}
