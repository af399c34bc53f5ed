//! Stores what an archive contains.

use super::{ImportError, refused};
use crate::{
    Digest, Error, Lease,
    blobs::PutError,
    decompress::decompress,
    manifest::MAX_DOCUMENT,
    tar_reader::{Entry, Kind, TarReader, drain},
    unpack::{Limits, Measured},
};
use std::{
    collections::HashMap,
    io::{self, BufReader, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Maximum number of files in an archive: 1000 images with 127 layers share most of them.
const MAX_FILES: usize = 20_000;

/// Maximum number of links from a path to a file. `docker save` links layers of several images to one file.
const MAX_LINKS: usize = 8;

/// Maximum length of a path in an archive: all are in memory. Those of Docker have less than 100 letters.
const MAX_PATH: usize = 1024;

/// Directory of blobs in an OCI image layout.
const BLOBS: &str = "blobs/sha256/";

/// Buffer of uncompressed bytes.
const BUFFER: usize = 256 << 10;

/// A file of an archive, as a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) digest: Digest,
    pub(super) size: u64,
}

/// Files of an archive.
#[derive(Default)]
pub(super) struct Archive {
    blobs: HashMap<String, Blob>,
    links: HashMap<String, String>,
    /// `index.json` of an OCI image layout.
    pub(super) index: Option<Vec<u8>>,
    /// `manifest.json` of `docker save`.
    pub(super) docker_manifest: Option<Vec<u8>>,
}

impl Archive {
    /// Reads an archive to its end.
    pub(super) fn read(
        lease: &Lease,
        source: impl Read + Send,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Self, ImportError> {
        let has_failed = Arc::new(AtomicBool::new(false));
        let source = Source { source, progress, count: 0, has_failed: has_failed.clone() };
        let mut archive = Self::default();
        archive.read_entries(lease, source).map_err(|error| match error {
            ReadError::Archive(error) if has_failed.load(Ordering::Relaxed) => ImportError::Read(error),
            ReadError::Archive(error) => refused(error.to_string()),
            ReadError::Import(error) => error,
        })?;
        Ok(archive)
    }

    fn read_entries(&mut self, lease: &Lease, source: impl Read + Send) -> Result<(), ReadError> {
        let limits = Limits::of(lease.store.root());
        let limits = limits.map_err(|error| store_error("failed to read the free space", error))?;
        let measured = Measured::new(decompress(source)?, limits.bytes);
        let mut reader = TarReader::new(BufReader::with_capacity(BUFFER, measured));
        while let Some(entry) = reader.next_entry()? {
            if self.blobs.len() + self.links.len() >= MAX_FILES || entry.path.len() > MAX_PATH {
                return Err(
                    refused(format!("more than {MAX_FILES} files, or a path of more than {MAX_PATH} bytes")).into()
                );
            }
            if let Some(path) = clean("", &entry.path) {
                self.read_entry(lease, path, &entry, &mut reader)?;
            }
        }
        // The writer of a pipe must not be stopped by what follows the end of the archive.
        Ok(drain(reader.into_inner())?)
    }

    fn read_entry(
        &mut self,
        lease: &Lease,
        path: String,
        entry: &Entry,
        data: &mut impl Read,
    ) -> Result<(), ReadError> {
        match (entry.kind, path.as_str()) {
            (Kind::Symlink, _) => {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                let target = clean(parent, &entry.link);
                self.links.extend(target.map(|target| (path, target)));
            }
            (Kind::HardLink, _) => self.links.extend(clean("", &entry.link).map(|target| (path, target))),
            (Kind::File, "index.json") => self.index = Some(document(entry, data)?),
            (Kind::File, "manifest.json") => self.docker_manifest = Some(document(entry, data)?),
            (Kind::File, _) if entry.sparse.is_none() => {
                let blob = store_blob(lease, &path, entry, data)?;
                self.blobs.insert(path, blob);
            }
            _ => {}
        }
        Ok(())
    }

    /// Finds a file by its path in the archive.
    pub(super) fn blob(&self, path: &str) -> Option<&Blob> {
        let mut path = clean("", path.as_bytes())?;
        for _ in 0..MAX_LINKS {
            match self.links.get(&path) {
                Some(target) => path.clone_from(target),
                None => break,
            }
        }
        self.blobs.get(&path)
    }
}

/// Error of reading an archive.
enum ReadError {
    /// The archive cannot be read or is malformed.
    Archive(io::Error),
    Import(ImportError),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Archive(error)
    }
}

impl From<ImportError> for ReadError {
    fn from(error: ImportError) -> Self {
        Self::Import(error)
    }
}

/// Stores a file. A blob of an image layout that is there already is skipped.
fn store_blob(lease: &Lease, path: &str, entry: &Entry, data: &mut impl Read) -> Result<Blob, ReadError> {
    let expected = path.strip_prefix(BLOBS).and_then(|hex| Digest::from_hex(hex).ok());
    if let Some(digest) = &expected
        && lease.store.blob_size(digest).is_ok_and(|size| size == entry.size)
    {
        return Ok(Blob { digest: *digest, size: entry.size });
    }
    let (digest, size) = lease.put_stream(data).map_err(|error| match error {
        PutError::Read(error) => ReadError::Archive(error),
        PutError::Write(error) => store_error("failed to write a blob", error),
    })?;
    if expected.is_some_and(|expected| expected != digest) {
        return Err(refused(format!("{path} has the digest {digest}")).into());
    }
    Ok(Blob { digest, size })
}

fn store_error(context: &str, source: io::Error) -> ReadError {
    ReadError::Import(ImportError::Store(Error::Io { context: context.to_owned(), source }))
}

fn document(entry: &Entry, data: &mut impl Read) -> Result<Vec<u8>, ReadError> {
    if entry.size > MAX_DOCUMENT {
        return Err(refused(format!("a document has more than {MAX_DOCUMENT} bytes")).into());
    }
    let mut document = Vec::new();
    data.read_to_end(&mut document)?;
    Ok(document)
}

/// Resolves a path relative to a directory of the archive. Returns `None` if it leads outside, or is not UTF-8.
fn clean(parent: &str, path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?;
    let parent = if path.starts_with('/') { "" } else { parent };
    let mut names: Vec<&str> = Vec::new();
    for name in parent.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}

/// The archive as it is received. Its errors are distinguished from those of its content.
struct Source<R, P> {
    source: R,
    progress: P,
    count: u64,
    has_failed: Arc<AtomicBool>,
}

impl<R: Read, P: FnMut(u64)> Read for Source<R, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.source.read(buffer);
        match &result {
            Ok(n) => {
                self.count += *n as u64;
                (self.progress)(self.count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.has_failed.store(true, Ordering::Relaxed),
        }
        result
    }
}
