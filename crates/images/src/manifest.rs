//! Manifests, indexes and configurations: OCI and Docker schema 2.

use crate::{
    Digest, DigestError, Error,
    platform::{rank, suits},
    store::ImageStore,
};
use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;

/// Maximum size of a manifest, an index or a configuration in bytes, as of registries (distribution specification).
pub(crate) const MAX_DOCUMENT: u64 = 4 << 20;

/// Maximum number of layers: overlayfs gets the directories of all layers in one page of mount options, as with Docker.
pub(crate) const MAX_LAYERS: usize = 127;

/// Maximum depth of indexes in indexes. `docker save` writes 2.
const MAX_INDEX_DEPTH: usize = 4;

/// Maximum number of documents that are read to find the manifest for a platform.
const MAX_DOCUMENTS: usize = 128;

/// A document that a reference can name.
#[derive(Debug)]
pub(crate) enum Document {
    Manifest(Box<ImageManifest>),
    Index(Box<ImageIndex>),
}

/// A manifest for this machine, with its configuration.
#[derive(Debug, Clone)]
pub(crate) struct ImageContent {
    /// Digest of the manifest.
    pub(crate) manifest_digest: Digest,
    pub(crate) manifest: ImageManifest,
    /// Digest of the configuration: the image ID.
    pub(crate) id: Digest,
    pub(crate) config: ImageConfiguration,
}

/// The fields that tell manifests from indexes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    schema_version: Option<u32>,
    manifests: Option<IgnoredAny>,
    config: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
}

/// Parses a manifest or an index. A document that could be both is refused: others would see another image
/// (CVE-2021-41190).
pub(crate) fn parse(data: &[u8]) -> Result<Document, String> {
    let shape: Shape = serde_json::from_slice(data).map_err(|error| error.to_string())?;
    if shape.schema_version != Some(2) {
        return Err("its schemaVersion is not 2".to_owned());
    }
    match (shape.manifests, shape.config.is_some() || shape.layers.is_some()) {
        (Some(_), true) => Err("it is both a manifest and an index".to_owned()),
        (Some(_), false) => serde_json::from_slice(data)
            .map(|index| Document::Index(Box::new(index)))
            .map_err(|error| error.to_string()),
        (None, _) => {
            let manifest: ImageManifest = from_slice(data, "/layers").map_err(|error| error.to_string())?;
            check(&manifest)?;
            Ok(Document::Manifest(Box::new(manifest)))
        }
    }
}

/// Parses a document in which an empty list may be null, as Go writes it: BuildKit does for images without layers.
fn from_slice<T: DeserializeOwned>(data: &[u8], list: &str) -> serde_json::Result<T> {
    serde_json::from_slice(data).or_else(|error| {
        let mut document: Value = serde_json::from_slice(data)?;
        match document.pointer_mut(list) {
            Some(list) if list.is_null() => *list = Value::Array(Vec::new()),
            _ => return Err(error),
        }
        serde_json::from_value(document)
    })
}

/// Parses the configuration of an image.
pub(crate) fn parse_config(data: &[u8]) -> serde_json::Result<ImageConfiguration> {
    from_slice(data, "/rootfs/diff_ids")
}

/// Checks the limits of a manifest.
fn check(manifest: &ImageManifest) -> Result<(), String> {
    let layers = manifest.layers().len();
    if layers > MAX_LAYERS {
        return Err(format!("it has {layers} layers, but overlayfs mounts at most {MAX_LAYERS}: squash some of them"));
    }
    if manifest.config().size() > MAX_DOCUMENT {
        return Err(format!("its configuration has more than {MAX_DOCUMENT} bytes"));
    }
    Ok(())
}

/// Returns the digests of the uncompressed layers, from the lowest one up.
pub(crate) fn diff_ids(config: &ImageConfiguration) -> Result<Vec<Digest>, String> {
    let diff_ids = config.rootfs().diff_ids();
    if diff_ids.len() > MAX_LAYERS {
        return Err(format!("it has {} layers, but overlayfs mounts at most {MAX_LAYERS}", diff_ids.len()));
    }
    let parse = |digest: &String| digest.parse().map_err(|error: DigestError| format!("diff ID {digest:?}: {error}"));
    diff_ids.iter().map(parse).collect()
}

/// Returns the chain IDs of layers (OCI image specification, config.md, "Layer ChainID"): each identifies a layer together with
/// all layers below it.
pub(crate) fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        let id = chain.last().map_or(*diff_id, |below| Digest::of(format!("{below} {diff_id}").as_bytes()));
        chain.push(id);
    }
    chain
}

impl ImageStore {
    /// Reads the configuration of an image.
    ///
    /// # Errors
    /// [`Error::MissingBlob`] if the image is not in the store.
    pub fn config(&self, id: &Digest) -> Result<ImageConfiguration, Error> {
        let data = self.read_document(id, MAX_DOCUMENT)?;
        parse_config(&data).map_err(|error| invalid_image(id, error.to_string()))
    }

    /// Finds the manifest for this machine: the document itself, or the best one of an index.
    ///
    /// # Errors
    /// [`Error::NoPlatform`] if there is none in the store.
    pub(crate) fn find_manifest(&self, digest: &Digest) -> Result<ImageContent, Error> {
        let mut documents = MAX_DOCUMENTS;
        self.find_below(digest, 0, &mut documents)?
            .ok_or_else(|| Error::NoPlatform { digest: *digest, platform: self.platform().to_string() })
    }

    fn find_below(&self, digest: &Digest, depth: usize, documents: &mut usize) -> Result<Option<ImageContent>, Error> {
        *documents = documents
            .checked_sub(1)
            .ok_or_else(|| invalid_image(digest, format!("an index has more than {MAX_DOCUMENTS} candidates")))?;
        match self.document(digest)? {
            Document::Manifest(manifest) => {
                let content = self.content(digest, *manifest)?;
                Ok(suits(self.platform(), &content.config).then_some(content))
            }
            Document::Index(_) if depth == MAX_INDEX_DEPTH => {
                Err(invalid_image(digest, format!("indexes are nested deeper than {MAX_INDEX_DEPTH}")))
            }
            Document::Index(index) => {
                for candidate in self.candidates(&index) {
                    // An archive or a registry may leave out other platforms, and documents that are no images.
                    let found = match self.find_below(&candidate, depth + 1, documents) {
                        Err(Error::MissingBlob(missing)) if missing == candidate => None,
                        result => result?,
                    };
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Ok(None)
            }
        }
    }

    /// Returns the entries of an index that may be for this machine, the best ones first.
    fn candidates(&self, index: &ImageIndex) -> Vec<Digest> {
        let mut ranked: Vec<(usize, Digest)> = Vec::new();
        for entry in index.manifests() {
            let found = match entry.platform() {
                // The configuration will say it.
                None => Some(usize::MAX),
                Some(p) => rank(self.platform(), p.os(), p.architecture(), p.variant().as_deref()),
            };
            ranked.extend(found.zip(digest_of(entry).ok()));
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, digest)| digest).collect()
    }

    /// Reads a manifest or an index.
    pub(crate) fn document(&self, digest: &Digest) -> Result<Document, Error> {
        let data = self.read_document(digest, MAX_DOCUMENT)?;
        parse(&data).map_err(|problem| invalid_image(digest, problem))
    }

    /// Reads the configuration of a manifest, and checks that both have the same number of layers.
    pub(crate) fn content(&self, digest: &Digest, manifest: ImageManifest) -> Result<ImageContent, Error> {
        let id = digest_of(manifest.config())?;
        let config = self.config(&id)?;
        let diff_ids = diff_ids(&config).map_err(|problem| invalid_image(&id, problem))?;
        if diff_ids.len() != manifest.layers().len() {
            let (stored, named) = (manifest.layers().len(), diff_ids.len());
            return Err(invalid_image(digest, format!("it has {stored} layers, and its configuration {named}")));
        }
        Ok(ImageContent { manifest_digest: *digest, manifest, id, config })
    }

    /// Reads a manifest that is known to be for this machine.
    pub(crate) fn manifest(&self, digest: &Digest) -> Result<ImageContent, Error> {
        match self.document(digest)? {
            Document::Manifest(manifest) => self.content(digest, *manifest),
            Document::Index(_) => Err(invalid_image(digest, "it is an index".to_owned())),
        }
    }

    /// Checks that the configuration and all layers are in the store.
    pub(crate) fn check_complete(&self, content: &ImageContent) -> Result<(), Error> {
        for descriptor in content.descriptors() {
            let digest = digest_of(descriptor)?;
            let size = self.blob_size(&digest)?;
            if size != descriptor.size() {
                let problem = format!("blob {digest} has {size} bytes instead of {}", descriptor.size());
                return Err(invalid_image(&content.manifest_digest, problem));
            }
        }
        Ok(())
    }
}

impl ImageContent {
    /// Returns the configuration and the layers, from the lowest one up.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(self.manifest.config()).chain(self.manifest.layers())
    }
}

/// Returns an error about a document.
pub(crate) fn invalid_image(digest: &Digest, problem: String) -> Error {
    Error::InvalidImage { digest: *digest, problem }
}

/// Returns the digest that a descriptor names.
///
/// # Errors
/// [`Error::Digest`] if it has another algorithm than SHA-256.
pub(crate) fn digest_of(descriptor: &Descriptor) -> Result<Digest, Error> {
    let text = descriptor.digest().as_ref();
    text.parse().map_err(|source| Error::Digest { digest: text.to_owned(), source })
}

#[cfg(test)]
mod tests;
