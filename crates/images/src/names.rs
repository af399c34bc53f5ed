//! Names of images: each is a small file. An image exists while it has a name.

use crate::{
    Digest, Error, Lease,
    error::Context,
    manifest::{chain_ids, diff_ids, digest_of, invalid_image},
    platform::suits,
    store::{ImageStore, entries, none_if_missing, sync_dir},
};
use distribution::Reference;
use serde::{Deserialize, Serialize};
use std::{fs, path::PathBuf};

/// A name and its image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedImage {
    /// Normalized reference, with a tag or a digest.
    pub name: String,
    /// Digest of the manifest or index that the reference names in its registry.
    pub target: Digest,
    /// Digest of the manifest for this machine.
    pub manifest: Digest,
    /// Image ID: digest of the configuration.
    pub id: Digest,
    /// Whether the kubelet's image garbage collection must keep the image.
    #[serde(default)]
    pub pinned: bool,
    /// Blobs of the manifest: collection must keep them also when the manifest is damaged. Empty if an earlier version named
    /// the image.
    #[serde(default)]
    pub(crate) blobs: Vec<Digest>,
    /// Chain IDs of the layers.
    #[serde(default)]
    pub(crate) layers: Vec<Digest>,
}

impl NamedImage {
    /// Returns whether the reference has a digest instead of a tag.
    pub(crate) fn is_digest_reference(&self) -> bool {
        self.name.contains('@')
    }
}

impl Lease {
    /// Gives an image a name. A name of another image moves.
    ///
    /// `target` is what the reference names in its registry: a manifest or an index. `manifest` is the manifest for this
    /// machine, which is in the store with all its blobs.
    ///
    /// # Errors
    /// If the reference is malformed or has another digest than the target, or if a blob of the image is missing.
    pub fn tag(&self, reference: &str, target: &Digest, manifest: &Digest) -> Result<NamedImage, Error> {
        let reference = Reference::parse(reference)?;
        if let Some(digest) = reference.digest()
            && digest != target
        {
            return Err(Error::InvalidArgument(format!("{reference} is not the name of {target}")));
        }
        let content = self.store.manifest(manifest)?;
        if !suits(self.store.platform(), &content.config) {
            let platform = self.store.platform().to_string();
            return Err(Error::NoPlatform { digest: *manifest, platform });
        }
        self.store.check_complete(&content)?;
        let diff_ids = diff_ids(&content.config).map_err(|problem| invalid_image(&content.id, problem))?;
        let mut named = NamedImage {
            name: reference.to_string(),
            target: *target,
            manifest: *manifest,
            id: content.id,
            pinned: false,
            blobs: content.descriptors().map(digest_of).collect::<Result<_, _>>()?,
            layers: chain_ids(&diff_ids),
        };
        let _names = self.store.lock_names()?;
        let before = self.store.read_name(&self.store.name_path(&named.name));
        named.pinned = before.is_ok_and(|before| before.is_some_and(|before| before.pinned));
        // First: a need without a name is dropped by collection, and a name that no cluster needs is removed by another one.
        self.store.record_added(&named)?;
        self.store.write_name(&named)?;
        Ok(named)
    }

    /// Names a pulled image as containerd does: by its reference, and by its repository and digest.
    ///
    /// # Errors
    /// As of [`Lease::tag`].
    pub fn tag_pulled(&self, reference: &str, target: &Digest, manifest: &Digest) -> Result<NamedImage, Error> {
        let repository = Reference::parse(reference)?.repository();
        self.tag(&format!("{repository}@{target}"), target, manifest)?;
        self.tag(reference, target, manifest)
    }
}

impl ImageStore {
    /// Finds an image by name, name and digest, or ID (with or without `sha256:`).
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none, or [`Error::Reference`] if the reference is malformed.
    pub fn resolve(&self, reference: &str) -> Result<NamedImage, Error> {
        let _lock = self.lock_shared()?;
        self.resolve_locked(reference)
    }

    pub(crate) fn resolve_locked(&self, reference: &str) -> Result<NamedImage, Error> {
        let missing = || Error::NotFound(reference.to_owned());
        if let Some(id) = image_id(reference) {
            return self.names()?.into_iter().find(|named| named.id == id).ok_or_else(missing);
        }
        let name = Reference::parse(reference)?.to_string();
        self.read_name(&self.name_path(&name))?.filter(|named| named.name == name).ok_or_else(missing)
    }

    /// Returns all names of the image that a reference names, as the cluster of this store sees it: at least one.
    ///
    /// # Errors
    /// As of [`ImageStore::resolve`].
    pub(crate) fn names_of(&self, reference: &str) -> Result<Vec<NamedImage>, Error> {
        let mut names = self.names()?;
        let found = match image_id(reference) {
            Some(id) => Some(id),
            None => {
                let name = Reference::parse(reference)?.to_string();
                names.iter().find(|named| named.name == name).map(|named| named.id)
            }
        };
        names.retain(|named| found == Some(named.id));
        let id = names.first().map(|named| named.id).ok_or_else(|| Error::NotFound(reference.to_owned()))?;
        if self.is_released(&id)? { Err(Error::NotFound(reference.to_owned())) } else { Ok(names) }
    }

    /// Removes a name, or with an image ID all names of the image, for all clusters. Names with digests go with the last tag. The
    /// content is removed by collection. Returns the removed names.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such image, [`Error::InUse`] if a container uses the image and has no other name of it.
    pub fn remove(&self, reference: &str) -> Result<Vec<String>, Error> {
        let (_lock, _names) = (self.lock_shared()?, self.lock_names()?);
        let named = self.resolve_locked(reference)?;
        let of_image: Vec<NamedImage> = self.names()?.into_iter().filter(|other| other.id == named.id).collect();
        let is_last_tag = !of_image.iter().any(|other| !other.is_digest_reference() && other.name != named.name);
        let with_all = image_id(reference).is_some() || is_last_tag && !named.is_digest_reference();
        if (with_all || of_image.len() == 1)
            && let Some((owner, user)) = self.user_of(&named.id)?
        {
            return Err(Error::InUse { reference: reference.to_owned(), user, owner });
        }
        let names = of_image.into_iter().map(|other| other.name).filter(|name| with_all || *name == named.name);
        self.remove_names(&named.id, names.collect())
    }

    /// Removes an image for this cluster, as containerd does: all its names. If another cluster needs the image, it keeps its
    /// names, and is not found by this cluster until it is added again. Returns the removed names.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such image, [`Error::InUse`] if a container of this cluster uses it.
    pub fn remove_for_cluster(&self, reference: &str) -> Result<Vec<String>, Error> {
        let (_lock, _names) = (self.lock_shared()?, self.lock_names()?);
        let id = self.resolve_locked(reference)?.id;
        if let Some((owner, user)) = self.own_user_of(&id)? {
            return Err(Error::InUse { reference: reference.to_owned(), user, owner });
        }
        if self.is_needed_by_others(&id)? {
            return self.record_released(&id).map(|()| Vec::new());
        }
        let names = self.names()?.into_iter().filter(|other| other.id == id).map(|other| other.name);
        self.remove_names(&id, names.collect())
    }

    /// Removes names of an image. The caller has the lock of the names.
    fn remove_names(&self, image: &Digest, names: Vec<String>) -> Result<Vec<String>, Error> {
        let mut removed = Vec::new();
        for name in names {
            let failed = || format!("failed to remove image {name}");
            if none_if_missing(fs::remove_file(self.name_path(&name))).context(failed)?.is_some() {
                removed.push(name);
            }
        }
        sync_dir(&self.dir("names")).context(|| format!("failed to remove image {image}"))?;
        if !self.names()?.iter().any(|other| other.id == *image) {
            self.forget_image(image)?;
        }
        Ok(removed)
    }

    /// Protects an image from the kubelet's garbage collection, or ends that.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such image.
    pub fn set_pinned(&self, reference: &str, pinned: bool) -> Result<(), Error> {
        let (_lock, _names) = (self.lock_shared()?, self.lock_names()?);
        let named = self.resolve_locked(reference)?;
        self.write_name(&NamedImage { pinned, ..named })
    }

    /// Returns all names, sorted. Damaged files are left out.
    pub(crate) fn names(&self) -> Result<Vec<NamedImage>, Error> {
        let mut names = Vec::new();
        for (_, path) in entries(&self.dir("names"))? {
            match self.read_name(&path) {
                Ok(named) => names.extend(named),
                Err(error) => tracing::warn!(%error, "ignoring a damaged image name"),
            }
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(names)
    }

    /// Returns `None` if the name has been removed.
    pub(crate) fn read_name(&self, path: &std::path::Path) -> Result<Option<NamedImage>, Error> {
        let failed = || format!("failed to read {}", path.display());
        let Some(data) = none_if_missing(fs::read(path)).context(failed)? else { return Ok(None) };
        serde_json::from_slice(&data).map(Some).map_err(std::io::Error::from).context(failed)
    }

    fn write_name(&self, named: &NamedImage) -> Result<(), Error> {
        let data = serde_json::to_vec(named).map_err(|error| invalid_image(&named.id, error.to_string()))?;
        self.replace(&self.name_path(&named.name), &data).context(|| format!("failed to name image {}", named.name))
    }

    /// References contain slashes, and may be longer than a file name.
    fn name_path(&self, name: &str) -> PathBuf {
        self.dir("names").join(format!("{}.json", Digest::of(name.as_bytes()).hex()))
    }
}

/// Parses an image ID. A prefix of an ID could be the name of a repository.
fn image_id(reference: &str) -> Option<Digest> {
    reference.parse().or_else(|_| Digest::from_hex(reference)).ok()
}
