//! Verification of servers' certificates as by Go's TLS clients, and Go's text of TLS errors.
#![forbid(unsafe_code)]

mod error_text;
mod verifier;

pub use error_text::go_error_text;
pub use verifier::ServerVerifier;
