//! Imports archives: `docker save`, and tar files of OCI image layouts.
//!
//! An archive is a stream: blobs and documents come in any order, so blobs are stored first, then the documents are resolved,
//! the layers unpacked, and at last the images named. Collection removes what remains of a failed import.

mod archive;

use crate::{
    Digest, Error, Lease,
    decompress::Compression,
    error::Context,
    manifest::{Document, ImageContent, MAX_DOCUMENT, MAX_LAYERS, digest_of, parse},
    store::ImageStore,
};
use archive::{Archive, Blob};
use distribution::Reference;
use oci_spec::image::{Descriptor, ImageManifestBuilder, MediaType};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Read},
    str::FromStr,
};

/// Maximum number of images in an archive: each configuration is parsed.
const MAX_IMAGES: usize = 1000;

/// Annotation with the full name of an image, written by containerd and Docker.
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// Annotation with the full name or only the tag of an image (OCI image specification, annotations.md).
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Error of an image import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The archive could not be read.
    #[error("failed to read the archive: {0}")]
    Read(#[source] io::Error),
    /// The archive is malformed, or its image is not for this machine.
    #[error("the archive is corrupt or contains no image: {0}")]
    Refused(String),
    /// The archive was imported, but contains no named image.
    #[error("no image in the archive has a name: save it by its name and tag, not by its ID")]
    Nameless,
    /// The store could not be written.
    #[error(transparent)]
    Store(Error),
}

impl From<Error> for ImportError {
    fn from(error: Error) -> Self {
        if error.is_invalid_content() { Self::Refused(error.to_string()) } else { Self::Store(error) }
    }
}

/// An image of an archive, with its names.
struct Found {
    names: Vec<String>,
    /// Manifest or index.
    target: Digest,
    content: ImageContent,
}

/// Image of `manifest.json` (`docker save`).
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DockerImage {
    /// Path of the configuration.
    pub(crate) config: String,
    pub(crate) repo_tags: Option<Vec<String>>,
    /// Paths of the layers, from the lowest one up.
    pub(crate) layers: Vec<String>,
}

impl ImageStore {
    /// Imports an archive, optionally compressed with gzip or zstd, and returns the names of its images. Calls `progress` with
    /// the number of bytes read.
    ///
    /// # Errors
    /// If the archive cannot be read, is malformed, or contains no named image for this machine. No image is named then.
    pub fn import(
        &self,
        archive: impl Read + Send,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Vec<String>, ImportError> {
        let lease = self.lease()?;
        let archive = Archive::read(&lease, archive, progress)?;
        let mut images = oci_images(&lease, &archive)?;
        if images.iter().all(|image| image.names.is_empty()) {
            images.extend(docker_images(&lease, &archive)?);
        }
        if images.is_empty() {
            return Err(refused("no image for this machine found"));
        }
        for image in &images {
            self.check_complete(&image.content)?;
            lease.unpack_content(&image.content)?;
        }
        let mut names = Vec::new();
        for image in &images {
            for name in &image.names {
                names.push(lease.tag(name, &image.target, &image.content.manifest_digest)?.name);
            }
        }
        if names.is_empty() { Err(ImportError::Nameless) } else { Ok(names) }
    }
}

/// Finds the images of an OCI image layout.
fn oci_images(lease: &Lease, archive: &Archive) -> Result<Vec<Found>, ImportError> {
    let Some(index) = &archive.index else { return Ok(Vec::new()) };
    let Document::Index(index) = parse(index).map_err(|problem| refused(format!("index.json: {problem}")))? else {
        return Err(refused("index.json is not an index"));
    };
    if index.manifests().len() > MAX_IMAGES {
        return Err(refused(format!("more than {MAX_IMAGES} images")));
    }
    let mut images = Vec::new();
    for entry in index.manifests() {
        let name = oci_name(entry)?;
        let target = digest_of(entry)?;
        match lease.store.find_manifest(&target) {
            Ok(content) => images.push(Found { names: name.into_iter().collect(), target, content }),
            // Attestations and images of other platforms are entries without a name.
            Err(error) if name.is_none() && error.is_invalid_content() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(images)
}

/// Returns the full name of an image. A tag alone is no name.
fn oci_name(entry: &Descriptor) -> Result<Option<String>, ImportError> {
    let Some(annotations) = entry.annotations() else { return Ok(None) };
    let full = annotations.get(REF_NAME).filter(|name| name.contains(['/', ':']));
    let Some(name) = annotations.get(CONTAINERD_NAME).or(full) else { return Ok(None) };
    let reference = Reference::parse(name).map_err(|error| refused(format!("{name:?}: {error}")))?;
    Ok(Some(reference.to_string()))
}

/// Finds the images of `docker save`, and writes their manifests.
fn docker_images(lease: &Lease, archive: &Archive) -> Result<Vec<Found>, ImportError> {
    let Some(manifest) = &archive.docker_manifest else { return Ok(Vec::new()) };
    let malformed = |error: serde_json::Error| refused(format!("manifest.json: {error}"));
    let images: Vec<DockerImage> = serde_json::from_slice(manifest).map_err(malformed)?;
    if images.len() > MAX_IMAGES {
        return Err(refused(format!("more than {MAX_IMAGES} images")));
    }
    images.iter().map(|image| docker_image(lease, archive, image)).collect()
}

fn docker_image(lease: &Lease, archive: &Archive, image: &DockerImage) -> Result<Found, ImportError> {
    let blob = |path: &str| archive.blob(path).ok_or_else(|| refused(format!("{path:?} is missing in the archive")));
    let config = blob(&image.config)?;
    if config.size > MAX_DOCUMENT || image.layers.len() > MAX_LAYERS {
        return Err(refused(format!("an image has more than {MAX_LAYERS} layers, or a configuration of 4 MiB")));
    }
    let mut layers = Vec::with_capacity(image.layers.len());
    for path in &image.layers {
        let layer = blob(path)?;
        layers.push(descriptor(layer_type(lease, layer)?, layer)?);
    }
    let manifest = ImageManifestBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageManifest)
        .config(descriptor(MediaType::ImageConfig, config)?)
        .layers(layers)
        .build()
        .map_err(|error| refused(error.to_string()))?;
    let data = serde_json::to_vec(&manifest).map_err(|error| refused(error.to_string()))?;
    let target = lease.put(&data)?;
    let content = lease.store.find_manifest(&target)?;
    let mut names = Vec::new();
    for name in image.repo_tags.iter().flatten() {
        names.push(Reference::parse(name).map_err(|error| refused(format!("{name:?}: {error}")))?.to_string());
    }
    Ok(Found { names, target, content })
}

/// Detects the compression of a layer.
fn layer_type(lease: &Lease, layer: &Blob) -> Result<MediaType, ImportError> {
    let mut begin = Vec::new();
    let file = lease.store.open_blob(&layer.digest)?;
    file.take(4).read_to_end(&mut begin).context(|| format!("failed to read blob {}", layer.digest))?;
    match Compression::detect(&begin).map_err(|error| refused(error.to_string()))? {
        Compression::None => Ok(MediaType::ImageLayer),
        Compression::Gzip => Ok(MediaType::ImageLayerGzip),
        Compression::Zstd => Ok(MediaType::ImageLayerZstd),
    }
}

fn descriptor(media_type: MediaType, blob: &Blob) -> Result<Descriptor, ImportError> {
    let digest = oci_spec::image::Digest::from_str(&blob.digest.to_string());
    Ok(Descriptor::new(media_type, blob.size, digest.map_err(|error| refused(error.to_string()))?))
}

fn refused(problem: impl Into<String>) -> ImportError {
    ImportError::Refused(problem.into())
}
