//! Pulls images from registries: OCI distribution specification, with containerd's mirrors and messages.
//!
//! **Invariant:** content with a digest is verified before it is published. Credentials are sent only to the registry
//! that they are for, and to its token endpoint. Sizes, counts and times of everything that a registry sends are
//! limited.
#![forbid(unsafe_code)]

mod authorizer;
mod blob_store;
mod challenge;
mod client;
mod connector;
mod digest;
mod endpoint;
mod error;
mod host_client;
mod hosts;
mod manifest;
mod partial_blob;
mod platform;
mod pull;
mod reference;
mod retries;
#[cfg(test)]
mod tests;
mod tls_config;
mod transfer;

pub use blob_store::{BlobStore, BlobWriter};
pub use client::Timeouts;
pub use digest::{Digest, DigestError};
pub use error::{PullError, PullErrorKind};
pub use platform::Platform;
pub use pull::{LayerProgress, Progress, PullOptions, Pulled, pull};
pub use reference::{Reference, ReferenceError};
