//! The way to a field.

use crate::element::Element;
use std::{fmt, ops::Deref};

/// The way from an object to one of its fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Element>);

impl Path {
    /// The path of these fields.
    #[must_use]
    pub fn of_fields(names: &[&str]) -> Self {
        Self(names.iter().map(|n| Element::field(n)).collect())
    }
}

impl Deref for Path {
    type Target = [Element];

    fn deref(&self) -> &[Element] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|e| write!(f, "{e}"))
    }
}
