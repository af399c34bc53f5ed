//! OCI images: blobs, manifests, and indexes of images for several platforms.

use crate::{ARCHITECTURE, ImageConfig, ImageError, append, image};
use data_encoding::HEXLOWER;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{io, path::Path};

/// Media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The blobs of an image.
#[derive(Debug, Clone)]
pub struct OciImage {
    /// Configuration, as JSON.
    pub config: Vec<u8>,
    /// Its one layer, a tar archive.
    pub layer: Vec<u8>,
    /// Manifest, as JSON.
    pub manifest: Vec<u8>,
    architecture: String,
}

impl OciImage {
    /// Builds a busybox image.
    ///
    /// # Errors
    /// When busybox is not installed.
    pub fn busybox(config: &ImageConfig) -> Result<Self, ImageError> {
        let (image, layer) = image(config)?;
        Ok(Self::new(config, &image, layer, "application/vnd.oci.image.layer.v1.tar"))
    }

    /// Builds a busybox image whose layer is compressed with zstd.
    ///
    /// # Errors
    /// When busybox is not installed.
    pub fn busybox_zstd(config: &ImageConfig) -> Result<Self, ImageError> {
        let (image, layer) = image(config)?;
        let layer = compress_to_vec(layer.as_slice(), CompressionLevel::Fastest);
        Ok(Self::new(config, &image, layer, "application/vnd.oci.image.layer.v1.tar+zstd"))
    }

    fn new(config: &ImageConfig, image: &Value, layer: Vec<u8>, layer_type: &str) -> Self {
        let image = image.to_string().into_bytes();
        let config_type = "application/vnd.oci.image.config.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor(config_type, &image), "layers": [descriptor(layer_type, &layer)]});
        let architecture = config.architecture.clone().unwrap_or_else(|| ARCHITECTURE.to_owned());
        Self { config: image, layer, manifest: manifest.to_string().into_bytes(), architecture }
    }

    /// Builds an index of images, each for its platform, as JSON.
    #[must_use]
    pub fn index(images: &[Self]) -> Vec<u8> {
        let manifests: Vec<Value> = images.iter().map(Self::index_entry).collect();
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string().into_bytes()
    }

    fn index_entry(&self) -> Value {
        let mut entry = descriptor(MANIFEST, &self.manifest);
        entry["platform"] = json!({"os": "linux", "architecture": self.architecture});
        entry
    }

    fn blobs(&self) -> [&Vec<u8>; 3] {
        [&self.layer, &self.config, &self.manifest]
    }
}

/// Returns the digest of a blob.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
}

/// Writes a busybox image as an OCI archive: an image layout in a tar file, as of `podman save --format oci-archive`.
///
/// # Errors
/// When busybox is not installed, or the file cannot be written.
pub fn busybox_oci(out: &Path, name: &str, config: &ImageConfig) -> Result<(), ImageError> {
    let image = OciImage::busybox(config)?;
    let entry = descriptor(MANIFEST, &image.manifest);
    write_layout(out, name, entry, &image.blobs())
}

/// Writes an index of busybox images for several platforms as an OCI archive.
///
/// # Errors
/// When busybox is not installed, or the file cannot be written.
pub fn busybox_index(out: &Path, name: &str, configs: &[ImageConfig]) -> Result<(), ImageError> {
    let images = configs.iter().map(OciImage::busybox).collect::<Result<Vec<_>, _>>()?;
    let index = OciImage::index(&images);
    let blobs: Vec<&Vec<u8>> = images.iter().flat_map(OciImage::blobs).chain([&index]).collect();
    write_layout(out, name, descriptor(INDEX, &index), &blobs)
}

fn write_layout(out: &Path, name: &str, mut entry: Value, blobs: &[&Vec<u8>]) -> Result<(), ImageError> {
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let mut archive = tar::Builder::new(io::BufWriter::new(std::fs::File::create(out)?));
    append(&mut archive, "oci-layout", br#"{"imageLayoutVersion": "1.0.0"}"#, 0o644)?;
    append(&mut archive, "index.json", index.as_bytes(), 0o644)?;
    for blob in blobs {
        append(&mut archive, &format!("blobs/sha256/{}", HEXLOWER.encode(&Sha256::digest(blob))), blob, 0o644)?;
    }
    io::Write::flush(&mut archive.into_inner()?)?;
    Ok(())
}
