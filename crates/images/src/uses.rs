//! Uses of images by containers. A use keeps the layers, also when the image has no name any more.
//!
//! A use is recorded before its container exists, and survives the death of every process. It is not synchronized: a power
//! failure ends all containers, and with them the uses. Two synchronizations would be most of the time of starting a container.

use crate::{
    Digest, Error,
    clusters::owner_key,
    error::Context,
    manifest::{chain_ids, diff_ids, invalid_image},
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

impl ImageStore {
    /// Records that `user` (a container ID) of `owner` (a cluster's data directory) uses an image, and returns the lower
    /// directories of its root file system, the top one first. Layers that are missing are unpacked. A repeated call replaces the
    /// use.
    ///
    /// # Errors
    /// If the image or a layer is not in the store, or if the use cannot be written.
    pub fn acquire(&self, owner: &Path, user: &str, image: &Digest) -> Result<Vec<PathBuf>, Error> {
        let lease = self.lease()?;
        let config = self.config(image).map_err(|error| match error {
            Error::MissingBlob(_) => Error::NotFound(image.to_string()),
            error => error,
        })?;
        let layers = chain_ids(&diff_ids(&config).map_err(|problem| invalid_image(image, problem))?);
        if !layers.iter().all(|layer| self.layer_path(layer).exists()) {
            lease.unpack(&self.resolve_locked(&image.to_string())?.manifest)?;
        }
        let lower_dirs = self.lower_dirs(&layers)?;
        let path = self.use_path(owner, user)?;
        let failed = || format!("failed to record the use of {image} by {user}");
        let in_use = Use { owner: owner.to_path_buf(), image: *image, layers };
        let data = serde_json::to_vec(&in_use).map_err(io::Error::from).context(failed)?;
        let dir = path.parent().unwrap_or(&path);
        if !dir.exists() {
            files::create_private_dir_all(dir).context(failed)?;
        }
        let mut temporary = self.temporary().context(failed)?;
        temporary.file.write_all(&data).context(failed)?;
        temporary.rename(&path).context(failed)?;
        self.record_used(owner, image)?;
        Ok(lower_dirs)
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
            for (user, path) in entries(&dir)? {
                // A use that is not understood keeps its content without a name, too.
                if let Ok(Some(found)) = read_use(&path)
                    && found.image == *image
                    && found.owner.exists()
                {
                    return Ok(Some((found.owner, user)));
                }
            }
        }
        Ok(None)
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

/// Reads a use. Returns `None` if it has ended.
///
/// # Errors
/// If the file cannot be read, or is not understood: of a newer version, or incomplete after a power failure. Its user may exist.
pub(crate) fn read_use(path: &Path) -> Result<Option<Use>, Error> {
    let failed = || format!("failed to read {}", path.display());
    let Some(data) = none_if_missing(fs::read(path)).context(failed)? else { return Ok(None) };
    serde_json::from_slice(&data).map(Some).map_err(io::Error::from).context(failed)
}
