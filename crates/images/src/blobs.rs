//! Blobs: complete ones, and downloads that can be resumed.

use crate::{
    BlobWriter, Digest, Error, Lease,
    collect::remove_file,
    error::{Context, invalid},
    lock::{self, Lock},
    manifest::digest_of,
    store::{ImageStore, Temporary, none_if_missing, sync_dir},
};
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Seek, Write},
    path::PathBuf,
};

/// Maximum size of a blob in bytes. Layers of 10 GB exist; the disk must not be filled by a stream that never ends.
pub(crate) const MAX_BLOB: u64 = 64 << 30;

/// Buffer for copies between files, in bytes.
const BUFFER: usize = 256 << 10;

/// Begin of the names of partial downloads in `ingest`.
pub(crate) const PARTIAL_PREFIX: &str = "blob-";

impl ImageStore {
    pub(crate) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.dir("blobs/sha256").join(digest.hex())
    }

    /// Opens a blob for reading.
    ///
    /// # Errors
    /// [`Error::MissingBlob`] if it is not in the store.
    pub fn open_blob(&self, digest: &Digest) -> Result<File, Error> {
        let file =
            none_if_missing(File::open(self.blob_path(digest))).context(|| format!("failed to open blob {digest}"))?;
        file.ok_or(Error::MissingBlob(*digest))
    }

    /// Returns the size of a blob in bytes.
    pub(crate) fn blob_size(&self, digest: &Digest) -> Result<u64, Error> {
        let metadata = none_if_missing(fs::symlink_metadata(self.blob_path(digest)));
        let metadata = metadata.context(|| format!("failed to read blob {digest}"))?;
        metadata.map(|m| m.len()).ok_or(Error::MissingBlob(*digest))
    }

    /// Returns whether a blob is in the store with its content, which is read whole.
    pub(crate) fn is_whole(&self, digest: &Digest) -> Result<bool, Error> {
        let mut file = match self.open_blob(digest) {
            Err(Error::MissingBlob(_)) => return Ok(false),
            file => file?,
        };
        let mut hasher = Sha256::new();
        hash(&mut file, &mut hasher).context(|| format!("failed to read blob {digest}"))?;
        Ok(Digest::finish(hasher) == *digest)
    }

    /// Reads a manifest or a configuration, and verifies it again: a damaged one would be taken for another image.
    pub(crate) fn read_document(&self, digest: &Digest, max: u64) -> Result<Vec<u8>, Error> {
        let (file, mut data) = (self.open_blob(digest)?, Vec::new());
        file.take(max + 1).read_to_end(&mut data).context(|| format!("failed to read blob {digest}"))?;
        let problem = if data.len() as u64 > max {
            format!("it has more than {max} bytes")
        } else if Digest::of(&data) != *digest {
            "the stored file is damaged".to_owned()
        } else {
            return Ok(data);
        };
        Err(Error::InvalidImage { digest: *digest, problem })
    }
}

impl Lease {
    /// Stores a blob that is in memory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, data: &[u8]) -> Result<Digest, Error> {
        let digest = Digest::of(data);
        let path = self.store.blob_path(&digest);
        if !self.store.is_whole(&digest)? {
            self.store.replace(&path, data).context(|| format!("failed to write blob {digest}"))?;
        }
        Ok(digest)
    }

    /// Stores a blob whose digest is not known yet. Returns its digest and size.
    pub(crate) fn put_stream(&self, source: &mut dyn Read) -> Result<(Digest, u64), PutError> {
        let mut temporary = self.store.temporary().map_err(PutError::Write)?;
        let (hasher, size) = copy_hashed(source, &mut temporary)?;
        let digest = Digest::finish(hasher);
        let path = self.store.blob_path(&digest);
        if !self.store.is_whole(&digest).map_err(|error| PutError::Write(io::Error::other(error)))? {
            temporary.publish(&path).map_err(PutError::Write)?;
        }
        Ok((digest, size))
    }

    /// Removes the damaged blobs of an image, and returns whether blobs must be fetched again. All blobs are read: a pull calls
    /// it when it cannot use an image. Blobs of layers that are unpacked are needed for archives only.
    ///
    /// # Errors
    /// If the store cannot be read or written, or if the manifest itself is damaged.
    pub fn remove_damaged(&self, manifest: &Digest) -> Result<bool, Error> {
        let mut is_incomplete = false;
        for descriptor in self.store.manifest(manifest)?.descriptors() {
            let digest = digest_of(descriptor)?;
            if self.store.is_whole(&digest)? {
                continue;
            }
            is_incomplete = true;
            tracing::warn!(%digest, "removing a damaged blob");
            // Another process may have written it again meanwhile: then it is fetched once more.
            remove_file(&self.store.blob_path(&digest))?;
        }
        Ok(is_incomplete)
    }
}

/// Reads a stream to its end. Returns its size.
fn hash(source: &mut impl Read, hasher: &mut Sha256) -> io::Result<u64> {
    let (mut size, mut buffer) = (0, vec![0; BUFFER]);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(size),
            Ok(n) => {
                hasher.update(buffer.get(..n).unwrap_or_default());
                size += n as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Error of storing a stream.
#[derive(Debug)]
pub(crate) enum PutError {
    /// The stream cannot be read.
    Read(io::Error),
    /// The store cannot be written.
    Write(io::Error),
}

fn copy_hashed(source: &mut dyn Read, target: &mut Temporary) -> Result<(Sha256, u64), PutError> {
    let (mut hasher, mut size, mut buffer) = (Sha256::new(), 0, vec![0; BUFFER]);
    loop {
        let n = match source.read(&mut buffer) {
            Ok(0) => return Ok((hasher, size)),
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(PutError::Read(error)),
        };
        let part = buffer.get(..n).unwrap_or_default();
        size += n as u64;
        if size > MAX_BLOB {
            return Err(PutError::Read(invalid(too_large())));
        }
        hasher.update(part);
        target.file.write_all(part).map_err(PutError::Write)?;
    }
}

fn too_large() -> String {
    format!("a blob has more than {MAX_BLOB} bytes")
}

/// A partial blob. Its file is locked.
pub(crate) struct PartialBlob {
    lease: Lease,
    digest: Digest,
    path: PathBuf,
    lock: Lock,
    hasher: Sha256,
    offset: u64,
}

impl PartialBlob {
    /// Opens a partial blob, and hashes what it contains already.
    pub(crate) fn open(lease: &Lease, digest: &Digest) -> io::Result<Option<Self>> {
        let path = lease.store.dir("ingest").join(format!("{PARTIAL_PREFIX}{}", digest.hex()));
        let Some(lock) = lock::open_unfinished(&path)? else { return Ok(None) };
        let mut hasher = Sha256::new();
        let offset = hash(&mut lock.file(), &mut hasher)?;
        Ok(Some(Self { lease: lease.clone(), digest: *digest, path, lock, hasher, offset }))
    }
}

impl BlobWriter for PartialBlob {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.offset.saturating_add(bytes.len() as u64) > MAX_BLOB {
            return Err(invalid(too_large()));
        }
        if let Err(error) = self.lock.file().write_all(bytes) {
            // Part of the bytes may have been written, for example to a full disk.
            self.lock.file().set_len(self.offset)?;
            self.lock.file().seek(io::SeekFrom::Start(self.offset))?;
            return Err(error);
        }
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn truncate(&mut self) -> io::Result<()> {
        self.lock.file().set_len(0)?;
        self.lock.file().rewind()?;
        (self.hasher, self.offset) = (Sha256::new(), 0);
        Ok(())
    }

    fn commit(self: Box<Self>) -> io::Result<()> {
        let found = Digest::finish(self.hasher);
        if found != self.digest {
            fs::remove_file(&self.path)?;
            let size = self.offset;
            return Err(invalid(format!("unexpected commit digest {found}, expected {} ({size} bytes)", self.digest)));
        }
        self.lock.file().sync_data()?;
        let path = self.lease.store.blob_path(&self.digest);
        fs::rename(&self.path, &path)?;
        path.parent().map_or(Ok(()), sync_dir)
    }
}
