//! Images and registry credentials.

use serde::{Deserialize, Serialize};

/// Image reference of a request (CRI `ImageSpec`).
#[derive(Debug, Clone, Copy)]
pub struct ImageSpec<'a> {
    /// Image name or ID.
    pub image: &'a str,
    /// Runtime handler; empty for the default (KEP-4216). Runtimes may store an image per handler.
    pub runtime_handler: &'a str,
}

impl<'a> From<&'a str> for ImageSpec<'a> {
    fn from(image: &'a str) -> Self {
        Self { image, runtime_handler: "" }
    }
}

/// Image in the runtime's image store (CRI `Image`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Image ID, to create containers with.
    pub id: String,
    /// References with a tag.
    pub tags: Vec<String>,
    /// References with a digest.
    pub digests: Vec<String>,
    /// Size in bytes.
    pub size: u64,
    /// Numeric user of the image configuration.
    pub uid: Option<i64>,
    /// User name of the image configuration.
    pub username: String,
    /// Whether image garbage collection must keep the image (`pinned`).
    pub pinned: bool,
}

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RegistryAuth {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// Server address of the registry.
    pub server_address: String,
    /// Identity token, instead of a password.
    pub identity_token: String,
    /// Bearer token.
    pub registry_token: String,
}

impl std::fmt::Debug for RegistryAuth {
    /// Omits secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryAuth").field("server_address", &self.server_address).finish_non_exhaustive()
    }
}
