//! The form in which an engine keeps the data of objects: as it is, or encrypted.

use thiserror::Error;

use crate::Key;

/// Transforms data before it is written and after it is read (upstream's `value.Transformer`).
pub trait Transformer: Send + Sync + 'static {
    /// Whether data may be transformed. Then the engine is compacted when it is opened, for it may hold replaced versions in
    /// another form.
    fn is_active(&self) -> bool;

    /// The stored form of an object's data; `None` if that is the data itself.
    ///
    /// # Errors
    ///
    /// The data must not be written.
    fn transform_to_storage(&self, key: &Key, data: &[u8]) -> Result<Option<Vec<u8>>, TransformError>;

    /// The data of an object, from its stored form.
    ///
    /// # Errors
    ///
    /// The object cannot be read.
    fn transform_from_storage(&self, key: &Key, stored: &[u8]) -> Result<StoredForm, TransformError>;
}

/// What a stored form holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StoredForm {
    /// The data; `None` if the stored form is the data itself.
    pub data: Option<Vec<u8>>,
    /// Whether a write would store it in another form.
    pub is_stale: bool,
}

/// Why data could not be transformed. The text never holds data or keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TransformError(pub String);
