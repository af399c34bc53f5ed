//! A kind as requests hold it: one of Podium's own, or one that a client has defined.

use super::{Custom, Kind};
use std::{fmt, ops::Deref, sync::Arc};

/// A kind. Cheap to clone.
#[derive(Clone)]
pub(crate) enum KindRef {
    /// One of [`super::ALL`].
    BuiltIn(&'static dyn Kind),
    /// One that a CustomResourceDefinition defines; it stays as it is for as long as somebody holds it.
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
