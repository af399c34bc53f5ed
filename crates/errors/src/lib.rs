//! API errors: a `Status` with reason, message, details and HTTP code (upstream's `apimachinery/pkg/api/errors`).
//!
//! It knows no kind: a resource or kind in an error is a [`GroupResource`] or a [`GroupKind`]. Errors of fields are
//! [`api::field::FieldErrors`].
#![forbid(unsafe_code)]

mod api_error;
mod group;

pub use api_error::ApiError;
pub use group::{GroupKind, GroupResource};
