//! Locks between processes (`flock`). The kernel releases them when a process dies.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Time between two attempts to get a lock that has a deadline.
const RETRY: Duration = Duration::from_millis(10);

/// A locked file. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Waits for a lock that others may share.
    pub(crate) fn shared(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        file.lock_shared()?;
        Ok(Self(file))
    }

    /// Waits for a lock that nobody shares.
    pub(crate) fn exclusive(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        file.lock()?;
        Ok(Self(file))
    }

    /// Waits at most this long for a lock that nobody shares.
    #[expect(clippy::disallowed_methods, reason = "the call blocks anyway, and the kernel has no deadline for locks")]
    pub(crate) fn exclusive_within(path: &Path, wait: Duration) -> io::Result<Option<Self>> {
        let (file, begin) = (open(path)?, Instant::now());
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self(file))),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if begin.elapsed() >= wait => return Ok(None),
                Err(TryLockError::WouldBlock) => thread::sleep(RETRY),
            }
        }
    }

    /// Returns the locked file.
    pub(crate) const fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    /// Unlocks explicitly: a child process that was forked meanwhile has the same open file until it executes a program.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::debug!(%error, "failed to release a lock");
        }
    }
}

/// Opens a file that its owner renames when it is complete, and locks it. Returns `None` if another process has the lock.
pub(crate) fn open_unfinished(path: &Path) -> io::Result<Option<Lock>> {
    loop {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let lock = Lock(file);
        // The file may have been renamed between opening and locking.
        let is_current = match fs::symlink_metadata(path) {
            Ok(current) => current.ino() == lock.file().metadata()?.ino(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if is_current {
            return Ok(Some(lock));
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    files::open_private(path, OpenOptions::new().read(true).write(true).create(true))
}
