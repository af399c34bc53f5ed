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
    entries: u64,
    directory_paths: u64,
    copies: u64,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { entries: limits.entries, directory_paths: MAX_DIRECTORY_PATHS, copies: limits.bytes }
    }

    pub(super) fn count_entry(&mut self) -> io::Result<()> {
        take(&mut self.entries, 1, "the layer has too many files for this file system")
    }

    pub(super) fn count_directory(&mut self, path: usize) -> io::Result<()> {
        take(&mut self.directory_paths, path as u64 + 64, "the layer has too many directories")
    }

    pub(super) fn count_copy(&mut self, size: u64) -> io::Result<()> {
        take(&mut self.copies, size, "the layer links to too many bytes of the layers below")
    }
}

fn take(left: &mut u64, n: u64, problem: &str) -> io::Result<()> {
    *left = left.checked_sub(n).ok_or_else(|| invalid(problem))?;
    Ok(())
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
            invalid(format!("more than {max} uncompressed bytes: the maximum, or most of the free space"))
        })?;
        self.hasher.update(buffer.get(..n).unwrap_or_default());
        Ok(n)
    }
}
