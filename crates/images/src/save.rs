//! Saves images as an archive that Docker and containerd can load.

use crate::{
    Digest, Error,
    blobs::MAX_BLOB,
    error::Context,
    import::{CONTAINERD_NAME, DockerImage, REF_NAME},
    manifest::{ImageContent, digest_of, invalid_image},
    store::ImageStore,
    unpack::Measured,
};
use oci_spec::image::MediaType;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Write},
};
use tar::{Builder, EntryType, Header};

/// Media type of an index.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// `index.json`. The types of oci-spec have annotations without an order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    media_type: &'static str,
    manifests: Vec<IndexEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IndexEntry {
    media_type: MediaType,
    digest: Digest,
    size: u64,
    platform: IndexPlatform,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<&'static str, String>>,
}

#[derive(Serialize)]
struct IndexPlatform {
    architecture: String,
    os: String,
}

impl ImageStore {
    /// Writes images as the tar file of an OCI image layout, with a `manifest.json` for Docker. The manifests are those for
    /// this machine. An image that is named by its ID has no name in the archive.
    ///
    /// # Errors
    /// [`Error::NotFound`] if an image is missing, or if the archive cannot be written.
    pub fn save(&self, references: &[&str], target: &mut dyn Write) -> Result<(), Error> {
        let lease = self.lease()?;
        let (mut entries, mut docker, mut blobs) = (Vec::new(), Vec::new(), BTreeSet::new());
        for reference in references {
            let named = self.resolve_locked(reference)?;
            let content = self.manifest(&named.manifest)?;
            self.check_complete(&content)?;
            let is_id = reference.parse::<Digest>().is_ok() || Digest::from_hex(reference).is_ok();
            let name = Some(named.name.as_str()).filter(|_| !is_id);
            entries.push(index_entry(&content, name, self.blob_size(&content.manifest_digest)?));
            docker.push(docker_entry(&content, name)?);
            blobs.insert(content.manifest_digest);
            for descriptor in content.descriptors() {
                blobs.insert(digest_of(descriptor)?);
            }
        }
        let failed = || "failed to write the archive".to_owned();
        let index = Index { schema_version: 2, media_type: INDEX, manifests: entries };
        let json = |error: serde_json::Error| Error::Io { context: failed(), source: error.into() };
        let (index, docker) = (serde_json::to_vec(&index).map_err(json)?, serde_json::to_vec(&docker).map_err(json)?);
        let mut archive = Builder::new(target);
        add(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#).context(failed)?;
        add(&mut archive, "index.json", &index).context(failed)?;
        add(&mut archive, "manifest.json", &docker).context(failed)?;
        for digest in &blobs {
            let file = lease.store.open_blob(digest)?;
            if add_file(&mut archive, &blob_path(digest), file).context(failed)? != *digest {
                return Err(invalid_image(digest, "the stored file is damaged".to_owned()));
            }
        }
        archive.into_inner().and_then(Write::flush).context(failed)
    }
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn index_entry(content: &ImageContent, name: Option<&str>, size: u64) -> IndexEntry {
    IndexEntry {
        media_type: content.manifest.media_type().clone().unwrap_or(MediaType::ImageManifest),
        digest: content.manifest_digest,
        size,
        platform: IndexPlatform {
            architecture: content.config.architecture().to_string(),
            os: content.config.os().to_string(),
        },
        annotations: name
            .map(|name| BTreeMap::from([CONTAINERD_NAME, REF_NAME].map(|annotation| (annotation, name.to_owned())))),
    }
}

fn docker_entry(content: &ImageContent, name: Option<&str>) -> Result<DockerImage, Error> {
    let layers = content.manifest.layers().iter().map(|layer| Ok(blob_path(&digest_of(layer)?)));
    Ok(DockerImage {
        config: blob_path(&content.id),
        // Docker accepts names with tags only.
        repo_tags: name.filter(|name| !name.contains('@')).map(|name| vec![name.to_owned()]),
        layers: layers.collect::<Result<Vec<_>, Error>>()?,
    })
}

fn header(size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(0o644);
    // The same images make the same archive.
    header.set_mtime(0);
    header
}

fn add(archive: &mut Builder<&mut dyn Write>, path: &str, data: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(data.len() as u64), path, data)
}

/// Adds a blob, and returns its digest.
fn add_file(archive: &mut Builder<&mut dyn Write>, path: &str, file: File) -> io::Result<Digest> {
    // Blobs do not change.
    let size = file.metadata()?.len();
    let mut measured = Measured::new(file, MAX_BLOB);
    archive.append_data(&mut header(size), path, &mut measured)?;
    Ok(measured.finish())
}
