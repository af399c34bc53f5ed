//! Limits of a layer: a small archive must not fill the disk, the memory or the inodes.

use crate::{Digest, error::invalid};
use sha2::{Digest as _, Sha256};
use std::{
    io::{self, Read},
    path::Path,
};

/// Maximum size of an unpacked layer in bytes. The largest published images have layers of some 10 GB.
pub(crate) const MAX_BYTES: u64 = 64 << 30;

/// Maximum number of entries of a layer. The largest published images have less than 1,000,000 files.
const MAX_ENTRIES: u64 = 2_000_000;

/// Maximum length of the paths of all directories of a layer in bytes, with 64 for each: they are in memory until the end.
/// Enough for half a million directories.
const MAX_DIRECTORY_PATHS: u64 = 64 << 20;

/// Share of the free space and of the free inodes that one layer may use, in percent.
const MAX_SHARE: u64 = 90;

/// Limits for a layer.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Size of the uncompressed archive in bytes, including what follows its end.
    pub(crate) bytes: u64,
    /// Number of files and directories.
    pub(crate) entries: u64,
}

impl Limits {
    /// Returns the limits for a layer in a directory, given the free space of the file system.
    pub(crate) fn of(dir: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(dir)?;
        let share = |free: u64| free / 100 * MAX_SHARE;
        let bytes = share(stat.f_bavail.saturating_mul(stat.f_frsize)).min(MAX_BYTES);
        // File systems without a fixed number of inodes report 0.
        let entries = if stat.f_files == 0 { MAX_ENTRIES } else { share(stat.f_favail).min(MAX_ENTRIES) };
        Ok(Self { bytes, entries })
    }
}

/// What is left of the limits.
pub(super) struct Budget {
    limits: Limits,
    entries: u64,
    directory_paths: u64,
    copies: u64,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        let (entries, copies) = (limits.entries, limits.bytes);
        Self { limits: limits.clone(), entries, directory_paths: MAX_DIRECTORY_PATHS, copies }
    }

    pub(super) fn count_entry(&mut self) -> io::Result<()> {
        let is_maximum = self.limits.entries == MAX_ENTRIES;
        take(&mut self.entries, 1, is_maximum, "the layer has too many files for this file system")
    }

    pub(super) fn count_directory(&mut self, path: usize) -> io::Result<()> {
        take(&mut self.directory_paths, path as u64 + 64, true, "the layer has too many directories")
    }

    pub(super) fn count_copy(&mut self, size: u64) -> io::Result<()> {
        let is_maximum = self.limits.bytes == MAX_BYTES;
        take(&mut self.copies, size, is_maximum, "the layer links to too many bytes of the layers below")
    }
}

fn take(left: &mut u64, n: u64, is_maximum: bool, problem: &str) -> io::Result<()> {
    *left = left.checked_sub(n).ok_or_else(|| exceeded(is_maximum, problem))?;
    Ok(())
}

/// Returns the error of a limit. If it is not the maximum, the file system is the cause, and not the layer.
fn exceeded(is_maximum: bool, problem: impl Into<String>) -> io::Error {
    if is_maximum { invalid(problem) } else { io::Error::new(io::ErrorKind::StorageFull, problem.into()) }
}

/// Hashes a stream, and limits its size.
pub(crate) struct Measured<R> {
    source: R,
    hasher: Sha256,
    left: u64,
    max: u64,
}

impl<R: Read> Measured<R> {
    pub(crate) fn new(source: R, max: u64) -> Self {
        Self { source, hasher: Sha256::new(), left: max, max }
    }

    /// Returns the digest of what was read.
    pub(crate) fn finish(self) -> Digest {
        Digest::finish(self.hasher)
    }
}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        let max = self.max;
        self.left = self.left.checked_sub(n as u64).ok_or_else(|| {
            let problem = format!("more than {max} uncompressed bytes: the maximum, or most of the free space");
            exceeded(max >= MAX_BYTES, problem)
        })?;
        self.hasher.update(buffer.get(..n).unwrap_or_default());
        Ok(n)
    }
}
