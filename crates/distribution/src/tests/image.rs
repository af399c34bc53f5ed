//! Images to serve.

use super::registry::Contents;
use crate::Digest;
use bytes::Bytes;
use serde_json::{Value, json};

pub(super) const REPOSITORY: &str = "/v2/team/app";
pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(super) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// Image with a manifest and no index.
pub(super) struct Image {
    pub(super) media_type: &'static str,
    pub(super) layers: Vec<Bytes>,
    pub(super) config: Bytes,
    pub(super) manifest: Bytes,
}

/// Content that is not compressible.
pub(super) fn noise(seed: u8, size: usize) -> Bytes {
    let mut state = u32::from(seed).wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    std::iter::repeat_with(next).take(size).collect()
}

pub(super) fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": Digest::of(content).to_string(), "size": content.len() })
}

impl Image {
    pub(super) fn new(layers: &[Bytes]) -> Self {
        Self::for_architecture("amd64", OCI_MANIFEST, layers)
    }

    pub(super) fn for_architecture(architecture: &str, media_type: &'static str, layers: &[Bytes]) -> Self {
        let is_docker = media_type == DOCKER_MANIFEST;
        let [config_type, layer_type] = if is_docker {
            ["application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar.gzip"]
        } else {
            ["application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar+gzip"]
        };
        let config = Bytes::from(json!({ "os": "linux", "architecture": architecture }).to_string());
        let descriptors: Vec<Value> = layers.iter().map(|layer| descriptor(layer_type, layer)).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": descriptor(config_type, &config),
            "layers": descriptors,
        });
        Self { media_type, layers: layers.to_vec(), config, manifest: Bytes::from(manifest.to_string()) }
    }

    /// Returns manifest, config and layers by their paths.
    pub(super) fn contents(&self) -> Contents {
        let mut contents = Contents::new();
        let digest = Digest::of(&self.manifest);
        contents
            .insert(format!("{REPOSITORY}/manifests/{digest}"), (self.media_type.to_owned(), self.manifest.clone()));
        for blob in self.layers.iter().chain([&self.config]) {
            let path = format!("{REPOSITORY}/blobs/{}", Digest::of(blob));
            contents.insert(path, ("application/octet-stream".to_owned(), blob.clone()));
        }
        contents
    }

    /// Returns the contents, with the tag `1` of the manifest.
    pub(super) fn tagged(&self) -> Contents {
        let mut contents = self.contents();
        contents.insert(format!("{REPOSITORY}/manifests/1"), (self.media_type.to_owned(), self.manifest.clone()));
        contents
    }
}

/// Returns an index of images, each with its architecture.
pub(super) fn index(media_type: &str, images: &[(&str, &Image)]) -> Bytes {
    let entries = images.iter().map(|(architecture, image)| {
        let mut entry = descriptor(image.media_type, &image.manifest);
        entry["platform"] = json!({ "os": "linux", "architecture": architecture });
        entry
    });
    let manifests: Vec<Value> = entries.collect();
    Bytes::from(json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": manifests }).to_string())
}
