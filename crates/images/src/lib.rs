//! Content-addressed image store of a machine, shared by all clusters and users: blobs, names, unpacked layers, and which
//! container uses what. `distribution` pulls images, and writes through [`BlobStore`].
//!
//! All calls block. Archives and manifests come from anywhere: sizes, counts and paths are limited.
#![forbid(unsafe_code)]

mod blobs;
mod clusters;
mod collect;
mod decompress;
mod disk_usage;
mod error;
mod image;
mod import;
mod layers;
mod lock;
mod manifest;
mod mapped_layers;
mod names;
mod overlay;
mod platform;
mod save;
mod store;
mod tar_reader;
mod unpack;
mod uses;

pub use collect::Collected;
pub use disk_usage::{DiskUsage, disk_usage};
pub use distribution::{BlobStore, BlobWriter, Digest, DigestError, ReferenceError};
pub use error::Error;
pub use image::Image;
pub use import::ImportError;
pub use mapped_layers::MappedLayers;
pub use names::NamedImage;
pub use overlay::{create_upper, mount_overlay};
pub use store::{ImageStore, Lease};
pub use uses::AcquiredImage;

#[cfg(test)]
mod tests;
