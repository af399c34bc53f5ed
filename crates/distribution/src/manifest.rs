//! Manifests and indexes: OCI image specification, and Docker's schema 2.

use crate::{Digest, Platform, PullError, PullErrorKind, error::printable, platform::PlatformSpec};
use serde::Deserialize;
use std::collections::HashMap;

/// Maximum size of a manifest or an index, as containerd's `MaxManifestSize`.
pub(crate) const MAX_MANIFEST_SIZE: u64 = 4 << 20;
/// Maximum size of an image config.
pub(crate) const MAX_CONFIG_SIZE: u64 = 4 << 20;
/// Maximum number of layers, as Docker's `MaxLayerDepth` with the writable one: overlayfs mounts no more with short
/// paths.
pub(crate) const MAX_LAYERS: usize = 127;
/// Maximum number of indexes that refer to each other.
pub(crate) const MAX_INDEX_DEPTH: usize = 4;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_SCHEMA_1: &str = "application/vnd.docker.distribution.manifest.v1+prettyjws";

/// `Accept` header of requests for manifests, as containerd's.
pub(crate) const ACCEPT_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.oci.image.index.v1+json, */*";

/// Media types of layers, before their compression.
const LAYERS: [&str; 2] = ["application/vnd.oci.image.layer.v1.tar", "application/vnd.docker.image.rootfs.diff.tar"];
const COMPRESSIONS: [&str; 5] = ["", "+gzip", "+zstd", ".gzip", ".zstd"];

/// Content that a manifest refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) digest: Digest,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// Descriptor as it was received.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Descriptor {
    #[serde(default, rename = "mediaType")]
    media_type: String,
    digest: String,
    size: u64,
    urls: Option<Vec<String>>,
    platform: Option<PlatformSpec>,
}

/// Manifest of an image: its config and its distinct layers.
#[derive(Debug)]
pub(crate) struct ImageManifest {
    pub(crate) config: Blob,
    pub(crate) layers: Vec<Blob>,
}

/// Content that a tag or a digest names.
#[derive(Debug)]
pub(crate) enum Document {
    Index(Vec<Descriptor>),
    Image(ImageManifest),
}

#[derive(Deserialize)]
struct RawDocument {
    #[serde(rename = "schemaVersion")]
    schema_version: Option<u64>,
    #[serde(default, rename = "mediaType")]
    media_type: String,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// Parses a manifest or an index. `content_type` is the header, which counts if the document names no type itself.
///
/// # Errors
/// If the document is invalid, ambiguous, of an unsupported type, or exceeds a limit. `max_size` limits the sum of the
/// sizes of config and layers.
pub(crate) fn parse(content_type: &str, body: &[u8], max_size: u64) -> Result<Document, PullError> {
    let raw: RawDocument = serde_json::from_slice(body).map_err(|error| invalid(&printable(&error.to_string())))?;
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    let media_type = if raw.media_type.is_empty() { content_type } else { &raw.media_type };
    if raw.schema_version == Some(1) || media_type == DOCKER_SCHEMA_1 {
        let message = format!(
            "media type {DOCKER_SCHEMA_1:?} is not supported, please rebuild the image as {DOCKER_MANIFEST:?} or \
             {OCI_MANIFEST:?}"
        );
        return Err(PullError::new(PullErrorKind::Unsupported, message));
    }
    // A document that is both could be read as either one, under one digest (CVE-2021-41190).
    let is_index = raw.manifests.is_some();
    if is_index && (raw.layers.is_some() || raw.config.is_some()) {
        return Err(invalid("the document has the fields of a manifest and of an index"));
    }
    let is_other_type = match media_type {
        OCI_INDEX | DOCKER_INDEX => !is_index,
        OCI_MANIFEST | DOCKER_MANIFEST => is_index,
        _ => !raw.media_type.is_empty(),
    };
    if is_other_type {
        return Err(invalid(&format!("unexpected media type {:?}", printable(media_type))));
    }
    match (raw.manifests, raw.config) {
        (Some(manifests), _) => Ok(Document::Index(manifests)),
        (None, Some(config)) => image_manifest(&config, &raw.layers.unwrap_or_default(), max_size).map(Document::Image),
        (None, None) => Err(invalid("the document has neither a config nor manifests")),
    }
}

fn image_manifest(config: &Descriptor, layers: &[Descriptor], max_size: u64) -> Result<ImageManifest, PullError> {
    if layers.len() > MAX_LAYERS {
        let message = format!("the image has {} layers, the limit is {MAX_LAYERS}", layers.len());
        return Err(PullError::new(PullErrorKind::TooLarge, message));
    }
    let config = config.blob()?;
    if config.size > MAX_CONFIG_SIZE {
        return Err(too_large("config", config.size, MAX_CONFIG_SIZE));
    }
    let mut sizes = HashMap::new();
    let mut distinct = Vec::new();
    for layer in layers {
        layer.check_layer()?;
        let blob = layer.blob()?;
        match sizes.insert(blob.digest, blob.size) {
            None => distinct.push(blob),
            Some(size) if size == blob.size => {}
            Some(_) => return Err(invalid(&format!("layer {} has two sizes", blob.digest))),
        }
    }
    let size = distinct.iter().fold(config.size, |sum, layer| sum.saturating_add(layer.size));
    if size > max_size {
        return Err(too_large("image", size, max_size));
    }
    Ok(ImageManifest { config, layers: distinct })
}

impl Descriptor {
    /// Returns digest and size.
    fn blob(&self) -> Result<Blob, PullError> {
        let digest = self.digest.parse();
        let digest = digest.map_err(|error| invalid(&format!("digest {:?}: {error}", printable(&self.digest))))?;
        Ok(Blob { digest, size: self.size })
    }

    fn check_layer(&self) -> Result<(), PullError> {
        let media_type = self.media_type.as_str();
        let is_foreign = media_type.contains("foreign") || media_type.contains("nondistributable");
        let problem = if is_foreign || self.urls.as_ref().is_some_and(|urls| !urls.is_empty()) {
            "foreign layers are not supported: layer"
        } else if LAYERS.iter().any(|l| media_type.strip_prefix(l).is_some_and(|rest| COMPRESSIONS.contains(&rest))) {
            return Ok(());
        } else {
            "unsupported layer"
        };
        let message = format!("{problem} {} of type {:?}", printable(&self.digest), printable(media_type));
        Err(PullError::new(PullErrorKind::Unsupported, message))
    }
}

/// Selects the manifest for a platform: the best match, else the first one without a platform.
///
/// # Errors
/// [`PullErrorKind::NoPlatform`] if there is none, with containerd's message.
pub(crate) fn select(index: &[Descriptor], digest: &Digest, platform: &Platform) -> Result<Blob, PullError> {
    let ranked = index.iter().filter_map(|entry| Some((entry.platform.as_ref()?.rank(platform)?, entry)));
    // Of equal matches the first one counts.
    let best = ranked.min_by_key(|(rank, _)| *rank).map(|(_, entry)| entry);
    let found = best.or_else(|| index.iter().find(|entry| entry.platform.is_none()));
    let blob = found.ok_or_else(|| no_platform(digest))?.blob()?;
    if blob.size > MAX_MANIFEST_SIZE { Err(too_large("manifest", blob.size, MAX_MANIFEST_SIZE)) } else { Ok(blob) }
}

/// Checks that an image's config is for a platform. An empty config, as of the oldest images, is for any.
///
/// # Errors
/// [`PullErrorKind::NoPlatform`] if it is for another one, with containerd's message.
pub(crate) fn check_platform(config: &[u8], manifest: &Digest, platform: &Platform) -> Result<(), PullError> {
    let candidate = serde_json::from_slice::<PlatformSpec>(config);
    let mut candidate = candidate.map_err(|error| invalid(&format!("config: {}", printable(&error.to_string()))))?;
    if candidate.os.is_empty() {
        "linux".clone_into(&mut candidate.os);
    }
    if candidate.architecture.is_empty() {
        candidate.architecture.clone_from(&platform.architecture);
        candidate.variant.clone_from(&platform.variant);
    }
    if candidate.rank(platform).is_some() { Ok(()) } else { Err(no_platform(manifest)) }
}

fn no_platform(digest: &Digest) -> PullError {
    let message = format!("no match for platform in manifest {digest}: not found");
    PullError::new(PullErrorKind::NoPlatform, message)
}

fn invalid(problem: &str) -> PullError {
    PullError::new(PullErrorKind::InvalidManifest, format!("invalid manifest: {problem}"))
}

pub(crate) fn too_large(name: &str, size: u64, limit: u64) -> PullError {
    PullError::new(PullErrorKind::TooLarge, format!("rejecting {size} byte {name}, the limit is {limit} bytes"))
}

#[cfg(test)]
mod tests;
