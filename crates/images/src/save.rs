//! Saves images as an archive that Docker and containerd can load.

use crate::{Digest, Error, error::Context, manifest::ImageContent, store::ImageStore};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Write},
};
use tar::{Builder, EntryType, Header};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

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
            blobs.insert(content.manifest_digest.clone());
            for descriptor in content.descriptors() {
                blobs.insert(Digest::try_from(descriptor.digest())?);
            }
        }
        let failed = || "failed to write the archive".to_owned();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
        let mut archive = Builder::new(target);
        add(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#).context(failed)?;
        add(&mut archive, "index.json", index.to_string().as_bytes()).context(failed)?;
        add(&mut archive, "manifest.json", Value::from(docker).to_string().as_bytes()).context(failed)?;
        for digest in &blobs {
            let file = lease.store.open_blob(digest)?;
            add_file(&mut archive, &blob_path(digest), file).context(failed)?;
        }
        archive.into_inner().and_then(Write::flush).context(failed)
    }
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn index_entry(content: &ImageContent, name: Option<&str>, size: u64) -> Value {
    let media_type = content.manifest.media_type().as_ref().map_or(MANIFEST, AsRef::as_ref);
    let mut entry = json!({
        "mediaType": media_type,
        "digest": content.manifest_digest,
        "size": size,
        "platform": {"os": content.config.os(), "architecture": content.config.architecture()},
    });
    if let Some(name) = name {
        entry["annotations"] = json!({
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name,
        });
    }
    entry
}

fn docker_entry(content: &ImageContent, name: Option<&str>) -> Result<Value, Error> {
    let layers = content.manifest.layers().iter().map(|layer| Ok(blob_path(&Digest::try_from(layer.digest())?)));
    // Docker accepts names with tags only.
    let tags: Vec<&str> = name.into_iter().filter(|name| !name.contains('@')).collect();
    Ok(json!({
        "Config": blob_path(&content.id),
        "RepoTags": tags,
        "Layers": layers.collect::<Result<Vec<_>, Error>>()?,
    }))
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

fn add_file(archive: &mut Builder<&mut dyn Write>, path: &str, file: File) -> io::Result<()> {
    // Blobs do not change.
    let size = file.metadata()?.len();
    archive.append_data(&mut header(size), path, file)
}
