//! Uses of images by containers. A use keeps the layers, also when the image has no name any more.
//!
//! A use is recorded before its container exists, and survives the death of every process. It is not synchronized: a power
//! failure ends all containers, and with them the uses. Two synchronizations would be most of the time of starting a container.

use crate::{
    Digest, Error,
    clusters::owner_key,
    error::Context,
    image::split_names,
    manifest::{MAX_DOCUMENT, chain_ids, diff_ids, invalid_image, parse_config},
    store::{ImageStore, entries, none_if_missing},
};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Maximum length of a user's name, as of a file name.
const MAX_USER: usize = 255;

/// Use of an image, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    /// Absolute path of the owner's directory. Its uses end when it is removed.
    pub(crate) owner: PathBuf,
    /// Image ID.
    pub(crate) image: Digest,
    /// Chain IDs, from the lowest layer up.
    pub(crate) layers: Vec<Digest>,
}

/// An image that a container uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquiredImage {
    /// Image ID: digest of the configuration.
    pub id: Digest,
    /// References with a tag, sorted.
    pub tags: Vec<String>,
    /// References with a digest, sorted.
    pub digests: Vec<String>,
    /// Configuration as it was distributed.
    pub config: Vec<u8>,
    /// Lower directories of the root file system, the top one first.
    pub lower_dirs: Vec<PathBuf>,
}

impl ImageStore {
    /// Records that `user` (a container ID) of `owner` (a cluster's data directory) uses an image. Layers that are missing are
    /// unpacked. A repeated call replaces the use.
    ///
    /// An image with a use keeps its names: either the removal of an image finds the use, or this call does not find the image.
    ///
    /// # Errors
    /// If the image or a layer is not in the store, or if the use cannot be written.
    pub fn acquire(&self, owner: &Path, user: &str, reference: &str) -> Result<AcquiredImage, Error> {
        let lease = self.lease()?;
        let path = self.use_path(owner, user)?;
        if let Some(acquired) = self.acquire_unpacked(owner, &path, reference)? {
            return Ok(acquired);
        }
        // Without the lock of the names: it takes as long as a pull.
        let manifest = self.resolve_locked(reference)?.manifest;
        if let Err(error) = lease.unpack(&manifest) {
            // An image without a blob is not found, and is pulled again.
            if error.is_invalid_content()
                && let Err(error) = lease.remove_damaged(&manifest)
            {
                tracing::warn!(%error, "failed to remove the damaged blobs of an image");
            }
            return Err(error);
        }
        self.acquire_unpacked(owner, &path, reference)?.ok_or_else(|| Error::NotFound(reference.to_owned()))
    }

    /// Records a use. Returns `None` if a layer is not unpacked.
    fn acquire_unpacked(&self, owner: &Path, path: &Path, reference: &str) -> Result<Option<AcquiredImage>, Error> {
        let _names = self.lock_names()?;
        let names = self.names_of(reference)?;
        let image = names.first().ok_or_else(|| Error::NotFound(reference.to_owned()))?.id;
        let config = self.read_document(&image, MAX_DOCUMENT)?;
        let parsed = parse_config(&config).map_err(|error| invalid_image(&image, error.to_string()))?;
        let layers = chain_ids(&diff_ids(&parsed).map_err(|problem| invalid_image(&image, problem))?);
        if !layers.iter().all(|layer| self.layer_path(layer).exists()) {
            return Ok(None);
        }
        let lower_dirs = self.lower_dirs(&layers)?;
        let failed = || format!("failed to record the use of {image} by {}", path.display());
        let in_use = Use { owner: owner.to_path_buf(), image, layers };
        let data = serde_json::to_vec(&in_use).map_err(io::Error::from).context(failed)?;
        let dir = path.parent().unwrap_or(path);
        if !dir.exists() {
            files::create_private_dir_all(dir).context(failed)?;
        }
        let mut temporary = self.temporary().context(failed)?;
        temporary.file.write_all(&data).context(failed)?;
        temporary.rename(path).context(failed)?;
        self.record_used(owner, &image)?;
        let (digests, tags) = split_names(&names);
        Ok(Some(AcquiredImage { id: image, tags, digests, config, lower_dirs }))
    }

    /// Ends a use. A use that does not exist is no error. After a power failure, ended uses may be there again, and others
    /// missing: [`ImageStore::uses`] lists them.
    ///
    /// # Errors
    /// If the record cannot be removed.
    pub fn release(&self, owner: &Path, user: &str) -> Result<(), Error> {
        let path = self.use_path(owner, user)?;
        let removed = none_if_missing(fs::remove_file(path));
        removed.map(|_| ()).context(|| format!("failed to end the use of an image by {user}"))
    }

    /// Returns the users of an owner, with the IDs of their images: `None` if a record is damaged or of a newer version.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn uses(&self, owner: &Path) -> Result<Vec<(String, Option<Digest>)>, Error> {
        let _lock = self.lock_shared()?;
        let dir = self.owner_dir(owner)?;
        let mut uses = Vec::new();
        for (user, path) in if dir.exists() { entries(&dir)? } else { Vec::new() } {
            match read_use(&path) {
                Ok(found) => uses.extend(found.map(|found| (user, Some(found.image)))),
                Err(_) => uses.push((user, None)),
            }
        }
        uses.sort();
        Ok(uses)
    }

    /// Returns a container that uses an image, and its owner.
    pub(crate) fn user_of(&self, image: &Digest) -> Result<Option<(PathBuf, String)>, Error> {
        for (_, dir) in entries(&self.dir("uses"))? {
            if let Some(found) = user_in(&dir, image)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns a container of this cluster that uses an image.
    pub(crate) fn own_user_of(&self, image: &Digest) -> Result<Option<(PathBuf, String)>, Error> {
        let Some(cluster) = &self.cluster else { return Ok(None) };
        let dir = self.owner_dir(cluster)?;
        if dir.exists() { user_in(&dir, image) } else { Ok(None) }
    }

    fn use_path(&self, owner: &Path, user: &str) -> Result<PathBuf, Error> {
        let is_safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if user.is_empty() || user.len() > MAX_USER || user.starts_with('.') || !user.bytes().all(is_safe) {
            return Err(Error::InvalidArgument(format!("{user:?} is not the ID of a container")));
        }
        Ok(self.owner_dir(owner)?.join(user))
    }

    fn owner_dir(&self, owner: &Path) -> Result<PathBuf, Error> {
        Ok(self.dir("uses").join(owner_key(owner)?))
    }
}

/// Returns a user of an image in an owner's directory.
fn user_in(dir: &Path, image: &Digest) -> Result<Option<(PathBuf, String)>, Error> {
    for (user, path) in entries(dir)? {
        // A use that is not understood keeps its content without a name, too.
        if let Ok(Some(found)) = read_use(&path)
            && found.image == *image
            && found.owner.exists()
        {
            return Ok(Some((found.owner, user)));
        }
    }
    Ok(None)
}

/// Reads a use. Returns `None` if it has ended.
///
/// # Errors
/// If the file cannot be read, or is not understood: of a newer version, or incomplete after a power failure. Its user may exist.
pub(crate) fn read_use(path: &Path) -> Result<Option<Use>, Error> {
    let failed = || format!("failed to read {}", path.display());
    let Some(data) = none_if_missing(fs::read(path)).context(failed)? else { return Ok(None) };
    serde_json::from_slice(&data).map(Some).map_err(io::Error::from).context(failed)
}
