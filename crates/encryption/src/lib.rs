//! Encryption at rest: upstream's `EncryptionConfiguration` (apiserver.config.k8s.io/v1).
//!
//! A configuration lists resources and providers. The first provider of a resource encrypts on writes; all providers
//! decrypt on reads. The stored format is upstream's: `k8s:enc:PROVIDER:v1:KEY:` and the encrypted data.
//!
//! Sources: `k8s.io/apiserver/pkg/server/options/encryptionconfig`, `pkg/apis/apiserver/validation`, and
//! `pkg/storage/value`.
#![forbid(unsafe_code)]

mod cipher;
mod config;
mod decode;
mod provider;
mod resources;
mod validate;

pub use config::ConfigError;
pub use resources::Encryption;
