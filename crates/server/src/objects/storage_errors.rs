//! Errors of the store as errors of requests (upstream's `apiserver/pkg/registry/generic/storage/errors`).

use errors::ApiError;
use kinds::KindInfo;
use store::WriteError;

/// Returns the error of a request whose write failed (`InterpretCreateError`, `InterpretUpdateError`).
pub(crate) fn from_write_error(error: &WriteError, kind: &KindInfo, name: &str) -> ApiError {
    match error {
        WriteError::Conflict { .. } => ApiError::optimistic_lock_conflict(kind, name),
        WriteError::AlreadyExists { .. } => ApiError::already_exists(kind, name),
        WriteError::NotFound => ApiError::not_found(kind, name),
        // Upstream returns these two errors of etcd unchanged.
        WriteError::TooLarge { .. } => ApiError::new(500, "", "etcdserver: request is too large"),
        WriteError::NoSpace { .. } => ApiError::new(500, "", "etcdserver: mvcc: database space exceeded"),
        WriteError::Full => {
            ApiError::new(507, "InsufficientStorage", format!("the store cannot take the write: {error}"))
        }
        WriteError::Closed => ApiError::new(503, "ServiceUnavailable", "the server is shutting down"),
        other => ApiError::internal(other),
    }
}
