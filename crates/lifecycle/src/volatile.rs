//! Marker of state that is not durable.

use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// State whose changes need not be persisted before they are acted on: the next event, retry or relist restores it.
///
/// It is saved with the rest, but all its values are equal: types with volatile fields compare by their durable state.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Volatile<T>(pub(crate) T);

impl<T> PartialEq for Volatile<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Deref for Volatile<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Volatile<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
