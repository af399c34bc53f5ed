//! The store's directory, and what every operation on it needs: locks, and files that appear at once.
//!
//! ```text
//! lock                       shared by readers and leases; exclusive for collection
//! blobs/sha256/<hex>         manifests, configurations and layers, as distributed
//! names/<hash>.json          a reference, its manifest, its image ID and all content
//! names.lock                 exclusive for changes of names and of what clusters need
//! layers/<chain ID>/fs       an unpacked layer, ready for overlayfs
//! uses/<hash>/<user>         an image in use by a container of an owner
//! clusters/<hash>/           which images a cluster needs
//! empty/                     the lower directory of an image without layers
//! bottom/                    a second lower directory, for overlayfs
//! ingest/                    partial downloads, unfinished layers, locks of layers, temporary files
//! trash/                     what collection has removed, until it is deleted
//! ```
//!
//! Everything is written in `ingest`, synchronized and renamed. So a process can be killed at any moment.

use crate::{BlobWriter, Digest, Error, error::Context, lock::Lock, manifest::MAX_DOCUMENT};
use distribution::Platform;
use std::{
    fs::{self, File},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Mode of the empty lower directory: it becomes the root directory of containers.
const ROOT_DIRECTORY_MODE: u32 = 0o755;

/// Content-addressed image store of a machine. Several processes can use it at once.
#[derive(Debug, Clone)]
pub struct ImageStore {
    root: Arc<Path>,
    platform: Platform,
    /// Data directory of the cluster that uses the store; `None` for the administrator.
    pub(crate) cluster: Option<Arc<Path>>,
}

/// Keeps content without a name from being collected, as containerd's leases do: blobs and layers are added under a lease,
/// and the last step names the image. Clones share the lease, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Lease {
    pub(crate) store: ImageStore,
    _lock: Arc<Lock>,
}

impl ImageStore {
    /// Opens a store, and creates it if it is missing.
    ///
    /// # Errors
    /// If its directories cannot be created.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let failed = || format!("failed to create the image store {}", root.display());
        for dir in ["blobs/sha256", "names", "layers", "uses", "clusters", "ingest", "trash"] {
            files::create_private_dir_all(&root.join(dir)).context(failed)?;
        }
        files::create_private_dir_all(root).context(failed)?;
        for dir in ["empty", "bottom"] {
            files::create_dir_all_with_mode(&root.join(dir), ROOT_DIRECTORY_MODE).context(failed)?;
        }
        let root: PathBuf = root.canonicalize().context(failed)?;
        sync_dir(&root).context(failed)?;
        Ok(Self { root: root.into(), platform: Platform::default(), cluster: None })
    }

    /// Returns the root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns a store of the same directory for images of another platform.
    #[cfg(test)]
    pub(crate) fn with_platform(&self, platform: Platform) -> Self {
        Self { platform, ..self.clone() }
    }

    pub(crate) fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Begins to add content. Blocks while another process collects, which takes milliseconds.
    ///
    /// # Errors
    /// If the store cannot be locked.
    pub fn lease(&self) -> Result<Lease, Error> {
        Ok(Lease { store: self.clone(), _lock: Arc::new(self.lock_shared()?) })
    }

    pub(crate) fn lock_path(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Protects what is read or written meanwhile from collection.
    pub(crate) fn lock_shared(&self) -> Result<Lock, Error> {
        Lock::shared(&self.lock_path()).context(|| "failed to lock the image store".to_owned())
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Creates an empty file that is removed unless it is published. The caller has a shared lock.
    pub(crate) fn temporary(&self) -> io::Result<Temporary> {
        let path = self.root.join(format!("ingest/tmp-{:016x}", RandomState::new().build_hasher().finish()));
        Ok(Temporary { file: files::create_private(&path)?, path, is_published: false })
    }

    /// Writes a small file atomically and durably. The caller has a shared lock.
    pub(crate) fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut temporary = self.temporary()?;
        temporary.file.write_all(data)?;
        temporary.publish(path)
    }
}

/// A file in `ingest`.
pub(crate) struct Temporary {
    pub(crate) file: File,
    path: PathBuf,
    is_published: bool,
}

impl Temporary {
    /// Makes the file durable, and renames it.
    pub(crate) fn publish(self, path: &Path) -> io::Result<()> {
        self.file.sync_data()?;
        self.rename(path)?;
        path.parent().map_or(Ok(()), sync_dir)
    }

    /// Renames the file. It survives the death of all processes, but not a power failure.
    pub(crate) fn rename(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_published
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "failed to remove a temporary file");
        }
    }
}

/// Makes renames and new names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Returns `None` if the file is missing.
pub(crate) fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the entries of a directory with names that are valid UTF-8: the store creates no others.
pub(crate) fn entries(dir: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let failed = || format!("failed to list {}", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).context(failed)? {
        let entry = entry.context(failed)?;
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

impl crate::BlobStore for Lease {
    /// A damaged document counts as missing, so that the next pull repairs it. A large layer is verified when it is unpacked
    /// ([`Lease::remove_damaged`]): it would be read for each pull otherwise.
    fn contains(&self, digest: &Digest) -> io::Result<bool> {
        match self.store.blob_size(digest) {
            Ok(size) if size <= MAX_DOCUMENT => Ok(self.store.read_document(digest, MAX_DOCUMENT).is_ok()),
            Ok(_) => Ok(true),
            Err(Error::MissingBlob(_)) => Ok(false),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn open(&self, digest: &Digest) -> io::Result<Option<Box<dyn BlobWriter>>> {
        Ok(crate::blobs::PartialBlob::open(self, digest)?.map(|blob| Box::new(blob) as Box<dyn BlobWriter>))
    }
}
