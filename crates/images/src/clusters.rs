//! Which cluster of the machine needs which image. Names are those of the machine: the image garbage collection of one
//! cluster must not remove what another one needs.
//!
//! `clusters/<hash>/path` is the data directory of a cluster. `clusters/<hash>/<image ID>` says that the cluster pulled,
//! imported or used the image, or that it has removed it. A removed image that another cluster needs keeps its names, and is
//! invisible to the cluster that removed it. Without a record, an image is visible and not needed.

use crate::{
    Digest, Error,
    collect::{is_no_json, remove_file},
    error::Context,
    layers::remove_tree,
    lock::Lock,
    names::NamedImage,
    store::{ImageStore, entries, none_if_missing, sync_dir},
    uses::read_use,
};
use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// File with the path of a cluster's data directory.
const PATH: &str = "path";

/// Record of a cluster about an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The cluster pulled, imported or used the image.
    Needed,
    /// The cluster removed the image, and others need it.
    Released,
}

impl Need {
    const fn text(self) -> &'static str {
        match self {
            Self::Needed => "needed",
            Self::Released => "released",
        }
    }

    /// What is not understood, for example of a newer version, keeps the image.
    fn parse(text: &[u8]) -> Self {
        if text == Self::Released.text().as_bytes() { Self::Released } else { Self::Needed }
    }
}

impl ImageStore {
    /// Returns the store as a cluster sees it: images that it adds are needed by it, and images that it removes stay as long as
    /// other clusters need them.
    ///
    /// # Errors
    /// If the cluster cannot be recorded, or if the path is not absolute.
    pub fn of_cluster(&self, data_dir: &Path) -> Result<Self, Error> {
        let _lock = self.lock_shared()?;
        self.record_cluster(data_dir)?;
        let mut store = self.clone();
        store.cluster = Some(data_dir.into());
        Ok(store)
    }

    /// Forgets which images a cluster needs.
    ///
    /// # Errors
    /// If its records cannot be removed.
    pub fn forget_cluster(&self, data_dir: &Path) -> Result<(), Error> {
        let (_lock, _names) = (self.lock_shared()?, self.lock_names()?);
        let dir = self.cluster_dir(data_dir)?;
        remove_tree(&dir).context(|| format!("failed to remove {}", dir.display()))
    }

    /// Serializes changes of names and of what clusters need. The caller has a shared lock of the store.
    pub(crate) fn lock_names(&self) -> Result<Lock, Error> {
        Lock::exclusive(&self.dir("names.lock")).context(|| "failed to lock the names of images".to_owned())
    }

    /// Records that an image was added. Added for the machine, it is visible to all clusters again.
    pub(crate) fn record_added(&self, named: &NamedImage) -> Result<(), Error> {
        match &self.cluster {
            Some(cluster) => self.record(cluster, &named.id, Need::Needed),
            None => self.forget(&named.id, Some(Need::Released)),
        }
    }

    /// Records that a cluster uses an image. The caller has the lock of the names.
    pub(crate) fn record_used(&self, cluster: &Path, image: &Digest) -> Result<(), Error> {
        if self.need_of(&self.cluster_dir(cluster)?, image) == Some(Need::Needed) {
            return Ok(());
        }
        self.record_cluster(cluster)?;
        self.record(cluster, image, Need::Needed)
    }

    /// Records that this cluster has removed an image.
    pub(crate) fn record_released(&self, image: &Digest) -> Result<(), Error> {
        self.cluster.as_ref().map_or(Ok(()), |cluster| self.record(cluster, image, Need::Released))
    }

    /// Returns whether this cluster has removed an image that others still need. When the last of them has gone, it is an image of
    /// this cluster again, which its garbage collection removes.
    pub(crate) fn is_released(&self, image: &Digest) -> Result<bool, Error> {
        let Some(cluster) = &self.cluster else { return Ok(false) };
        let is_released = self.need_of(&self.cluster_dir(cluster)?, image) == Some(Need::Released);
        Ok(is_released && self.is_needed_by_others(image)?)
    }

    /// Forgets what clusters have recorded about an image that has no name any more.
    pub(crate) fn forget_image(&self, image: &Digest) -> Result<(), Error> {
        self.forget(image, None)
    }

    fn forget(&self, image: &Digest, only: Option<Need>) -> Result<(), Error> {
        for (_, dir) in entries(&self.dir("clusters"))? {
            if let Some(need) = self.need_of(&dir, image)
                && only.is_none_or(|only| only == need)
            {
                remove_file(&dir.join(image.hex()))?;
            }
        }
        Ok(())
    }

    /// Returns whether a cluster other than this one needs or uses an image.
    pub(crate) fn is_needed_by_others(&self, image: &Digest) -> Result<bool, Error> {
        let own = self.cluster.as_ref().map(|cluster| owner_key(cluster)).transpose()?;
        for (key, dir) in entries(&self.dir("clusters"))? {
            let is_other = own.as_ref() != Some(&key);
            if is_other && self.need_of(&dir, image) == Some(Need::Needed) && self.owner_exists(&key) != Some(false) {
                return Ok(true);
            }
        }
        for (key, dir) in entries(&self.dir("uses"))? {
            if own.as_ref() == Some(&key) {
                continue;
            }
            for (_, path) in entries(&dir)? {
                // A use that is not understood may be of this image.
                let is_used = match read_use(&path) {
                    Ok(None) => false,
                    Ok(Some(found)) => found.image == *image && exists(&found.owner),
                    Err(error) => self.may_be_use(&key, &error),
                };
                if is_used {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns whether a file that is not understood may be a use: its owner exists, or is not known. A torn file of an unknown
    /// owner is none: a power failure leaves such files, and nobody would remove them.
    pub(crate) fn may_be_use(&self, key: &str, error: &Error) -> bool {
        self.owner_exists(key).unwrap_or_else(|| !is_no_json(error))
    }

    /// Returns whether the data directory of a cluster exists; `None` if its path is not known.
    pub(crate) fn owner_exists(&self, key: &str) -> Option<bool> {
        let path = fs::read(self.dir("clusters").join(key).join(PATH)).ok()?;
        let path = Path::new(OsStr::from_bytes(&path));
        path.is_absolute().then(|| exists(path))
    }

    /// Removes records of clusters whose data directory is gone, and those of images without a name. The caller has the store's
    /// exclusive lock. `named` is `None` if not all names are known.
    pub(crate) fn sweep_clusters(&self, named: Option<&std::collections::HashSet<Digest>>) -> Result<(), Error> {
        for (key, dir) in entries(&self.dir("clusters"))? {
            if self.owner_exists(&key) == Some(false) {
                remove_tree(&dir).context(|| format!("failed to remove {}", dir.display()))?;
                continue;
            }
            for (name, path) in entries(&dir)? {
                let is_stale = |image| named.is_some_and(|named| !named.contains(&image));
                if Digest::from_hex(&name).is_ok_and(is_stale) {
                    remove_file(&path)?;
                }
            }
        }
        Ok(())
    }

    fn need_of(&self, dir: &Path, image: &Digest) -> Option<Need> {
        match none_if_missing(fs::read(dir.join(image.hex()))) {
            Ok(text) => text.map(|text| Need::parse(&text)),
            Err(_) => Some(Need::Needed),
        }
    }

    fn record(&self, cluster: &Path, image: &Digest, need: Need) -> Result<(), Error> {
        let path = self.cluster_dir(cluster)?.join(image.hex());
        let failed = || format!("failed to record image {image} for {}", cluster.display());
        self.replace(&path, need.text().as_bytes()).context(failed)
    }

    /// Records the path of a cluster, durably: an incomplete use of it cannot be attributed otherwise.
    fn record_cluster(&self, cluster: &Path) -> Result<(), Error> {
        let dir = self.cluster_dir(cluster)?;
        let failed = || format!("failed to record the cluster of {}", cluster.display());
        if dir.join(PATH).exists() {
            return Ok(());
        }
        files::create_private_dir_all(&dir).context(failed)?;
        sync_dir(&self.dir("clusters")).context(failed)?;
        self.replace(&dir.join(PATH), cluster.as_os_str().as_bytes()).context(failed)
    }

    fn cluster_dir(&self, cluster: &Path) -> Result<PathBuf, Error> {
        Ok(self.dir("clusters").join(owner_key(cluster)?))
    }
}

/// Returns the name of the directories of an owner: of its uses, and of its records.
pub(crate) fn owner_key(owner: &Path) -> Result<String, Error> {
    match owner.to_str() {
        Some(path) if owner.is_absolute() => Ok(Digest::of(path.as_bytes()).hex()),
        _ => Err(Error::InvalidArgument(format!("{} is not an absolute path in UTF-8", owner.display()))),
    }
}

/// Returns whether a directory exists, also if it cannot be read now.
fn exists(path: &Path) -> bool {
    !matches!(none_if_missing(fs::symlink_metadata(path)), Ok(None))
}
