//! Images: those that are there, and how one is asked for.

use serde::{Deserialize, Serialize};

/// An image that is looked for (`ImageSpec` of the CRI).
#[derive(Debug, Clone, Copy)]
pub struct ImageSpec<'a> {
    /// Its name or id.
    pub image: &'a str,
    /// What of the runtime it is for; empty for all (KEP-4216). Runtimes may keep an image once for each.
    pub runtime_handler: &'a str,
}

impl<'a> From<&'a str> for ImageSpec<'a> {
    fn from(image: &'a str) -> Self {
        Self { image, runtime_handler: "" }
    }
}

/// An image that is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The runtime's id for it, to create containers with.
    pub id: String,
    /// Names with a tag.
    pub tags: Vec<String>,
    /// Names with a digest.
    pub digests: Vec<String>,
    /// Bytes on disk.
    pub size: u64,
    /// Numeric user of the image, if it names one by number.
    pub uid: Option<i64>,
    /// User name of the image, if it names one by name.
    pub username: String,
    /// Whether the runtime itself needs it.
    pub pinned: bool,
}

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RegistryAuth {
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
    /// The registry's host.
    pub server_address: String,
    /// Identity token, instead of a password.
    pub identity_token: String,
    /// Bearer token.
    pub registry_token: String,
}

impl std::fmt::Debug for RegistryAuth {
    /// Never shows a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryAuth").field("server_address", &self.server_address).finish_non_exhaustive()
    }
}
