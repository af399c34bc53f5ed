//! Transformation of stored data: identity or encryption.

use crate::Key;
use thiserror::Error;

/// Transforms data before it is written and after it is read (upstream's `value.Transformer`).
pub trait Transformer: Send + Sync + 'static {
    /// Returns whether data may be transformed. Then the engine is compacted on opening, for it may contain replaced
    /// versions in another form.
    fn is_active(&self) -> bool;

    /// Returns the stored form of an object's data; `None` if that is the data itself.
    ///
    /// # Errors
    ///
    /// The data must not be written.
    fn transform_to_storage(&self, key: &Key, data: &[u8]) -> Result<Option<Vec<u8>>, TransformError>;

    /// Returns the data of an object, from its stored form.
    ///
    /// # Errors
    ///
    /// The object cannot be read.
    fn transform_from_storage(&self, key: &Key, stored: &[u8]) -> Result<StoredForm, TransformError>;
}

/// Data of a stored form.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StoredForm {
    /// Data; `None` if the stored form is the data itself.
    pub data: Option<Vec<u8>>,
    /// Whether the stored form is outdated: a write would use another.
    pub is_stale: bool,
}

/// Error of a transformation. The text never contains data or keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TransformError(pub String);
