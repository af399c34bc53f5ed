//! What the kubelet needs to know of an image.

use crate::{Digest, Error, manifest::ImageContent, names::NamedImage, store::ImageStore};
use std::collections::BTreeMap;

/// An image (CRI `Image`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Image ID: digest of the configuration.
    pub id: Digest,
    /// References with a tag, sorted.
    pub tags: Vec<String>,
    /// References with a digest, sorted.
    pub digests: Vec<String>,
    /// Size of manifest, configuration and compressed layers in bytes, as containerd reports it.
    pub size: u64,
    /// Numeric user of the configuration.
    pub uid: Option<i64>,
    /// User name of the configuration.
    pub username: String,
    /// Whether the kubelet's image garbage collection must keep the image.
    pub pinned: bool,
    /// Stop signal of the configuration, for example `SIGQUIT`.
    pub stop_signal: Option<String>,
}

impl ImageStore {
    /// Returns all images, sorted by ID. Damaged images are left out, and those that this cluster has removed.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn list(&self) -> Result<Vec<Image>, Error> {
        let _lock = self.lock_shared()?;
        let mut by_id: BTreeMap<Digest, Vec<NamedImage>> = BTreeMap::new();
        for named in self.names()? {
            if self.is_released(&named.id)? {
                continue;
            }
            by_id.entry(named.id).or_default().push(named);
        }
        let images = by_id.into_values().filter_map(|names| match self.describe(&names) {
            Ok(image) => image,
            Err(error) => {
                tracing::warn!(%error, "ignoring a damaged image");
                None
            }
        });
        Ok(images.collect())
    }

    /// Returns an image by name, name and digest, or ID.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none, others if the reference is malformed or the image damaged.
    pub fn image(&self, reference: &str) -> Result<Image, Error> {
        let _lock = self.lock_shared()?;
        let names = self.names_of(reference)?;
        self.describe(&names)?.ok_or_else(|| Error::NotFound(reference.to_owned()))
    }

    /// Describes the image that all these names have.
    fn describe(&self, names: &[NamedImage]) -> Result<Option<Image>, Error> {
        let Some(first) = names.first() else { return Ok(None) };
        let content = self.manifest(&first.manifest)?;
        if !first.layers.iter().all(|layer| self.layer_path(layer).exists()) {
            self.check_complete(&content)?;
        }
        let (digests, tags) = split_names(names);
        let settings = content.config.config().as_ref();
        let (uid, username) = user(settings.and_then(|c| c.user().as_deref()).unwrap_or_default());
        Ok(Some(Image {
            size: content.size().saturating_add(self.blob_size(&content.manifest_digest)?),
            stop_signal: settings.and_then(|c| c.stop_signal().clone()).filter(|signal| !signal.is_empty()),
            id: content.id,
            tags,
            digests,
            uid,
            username,
            pinned: names.iter().any(|named| named.pinned),
        }))
    }
}

/// Returns the names with a digest, and those with a tag.
pub(crate) fn split_names(names: &[NamedImage]) -> (Vec<String>, Vec<String>) {
    let (digests, tags): (Vec<_>, Vec<_>) = names.iter().partition(|named| named.is_digest_reference());
    let strings = |names: Vec<&NamedImage>| names.into_iter().map(|named| named.name.clone()).collect();
    (strings(digests), strings(tags))
}

impl ImageContent {
    /// Returns the size of configuration and layers in bytes.
    fn size(&self) -> u64 {
        self.descriptors().fold(0, |sum: u64, descriptor| sum.saturating_add(descriptor.size()))
    }
}

/// Splits `USER` of an image: `user`, `uid`, `user:group` and so on (containerd's `getUserFromImage`).
fn user(text: &str) -> (Option<i64>, String) {
    let user = text.split(':').next().unwrap_or_default();
    match user.parse() {
        Ok(uid) => (Some(uid), String::new()),
        Err(_) => (None, user.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers_or_names() {
        let named = |name: &str| (None, name.to_owned());
        for (text, expected) in [
            ("", named("")),
            ("0", (Some(0), String::new())),
            ("1000:1000", (Some(1000), String::new())),
            ("nobody:nogroup", named("nobody")),
        ] {
            assert_eq!(user(text), expected);
        }
    }
}
