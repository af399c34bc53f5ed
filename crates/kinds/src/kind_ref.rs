//! Reference to a built-in or custom kind.

use super::{Custom, Kind};
use std::{fmt, ops::Deref, sync::Arc};

/// A reference to a kind. Cheap to clone.
#[derive(Clone)]
pub enum KindRef {
    /// A built-in kind, one of [`super::ALL`].
    BuiltIn(&'static dyn Kind),
    /// A kind that a CustomResourceDefinition defines. It is immutable while it is referenced.
    Custom(Arc<Custom>),
}

impl Deref for KindRef {
    type Target = dyn Kind;

    fn deref(&self) -> &(dyn Kind + 'static) {
        match self {
            Self::BuiltIn(kind) => *kind,
            Self::Custom(kind) => kind.as_ref(),
        }
    }
}

impl fmt::Debug for KindRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.info().api_version(), self.info().kind)
    }
}
