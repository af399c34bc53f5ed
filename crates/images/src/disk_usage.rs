//! Disk usage of a container's writable layer, while the container may change it.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use std::{
    collections::HashSet,
    io,
    path::Path,
    time::{Duration, Instant},
};

/// Number of attempts while directories are moved during the count.
const ATTEMPTS: u32 = 3;

/// Disk usage of a directory with all that is below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskUsage {
    /// Allocated bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// Counts what is below a directory, with the directory itself. Hard links count once. Mounts and symbolic links are not
/// followed. Any depth is possible: a container can make directories deeper than the longest path.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after `limit`. If the container moves directories again and again.
pub fn disk_usage(dir: &Path, limit: Duration) -> io::Result<DiskUsage> {
    let deadline = Instant::now() + limit;
    let mut result = Err(io::ErrorKind::Interrupted.into());
    for _ in 0..ATTEMPTS {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = fs::open(dir, flags, Mode::empty())?;
        result = Counter { usage: DiskUsage::default(), linked: HashSet::new(), deadline }.count(root);
        if !result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
            break;
        }
    }
    result
}

struct Counter {
    usage: DiskUsage,
    /// Inodes with several names.
    linked: HashSet<(u64, u64)>,
    deadline: Instant,
}

/// A directory above the current one.
struct Level {
    id: (u64, u64),
    /// Names of directories that are not counted yet.
    pending: Vec<Vec<u8>>,
}

impl Counter {
    /// Has one open directory at a time, and goes up through `..`. If that is another directory, the container has moved it.
    fn count(mut self, root: OwnedFd) -> io::Result<DiskUsage> {
        self.add(&fs::fstat(&root)?);
        let mut levels = vec![self.level(&root)?];
        let mut current = root;
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.pending.pop() {
                match open_child(&current, &name) {
                    Ok(child) => {
                        levels.push(self.level(&child)?);
                        current = child;
                    }
                    // Removed or replaced meanwhile, or a mount.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            levels.pop();
            let Some(above) = levels.last() else { break };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let parent = fs::openat(&current, "..", flags, Mode::empty())?;
            if id(&fs::fstat(&parent)?) != above.id {
                return Err(io::ErrorKind::Interrupted.into());
            }
            current = parent;
        }
        Ok(self.usage)
    }

    /// Counts the entries of a directory.
    fn level(&mut self, dir: &OwnedFd) -> io::Result<Level> {
        let mut pending = Vec::new();
        let mut entries = Dir::read_from(dir)?;
        while let Some(entry) = entries.read() {
            if Instant::now() > self.deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "counting the disk usage takes too long"));
            }
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
                Ok(stat) => {
                    self.add(&stat);
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                        pending.push(name.to_bytes().to_vec());
                    }
                }
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Level { id: id(&fs::fstat(dir)?), pending })
    }

    fn add(&mut self, stat: &fs::Stat) {
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !is_directory && stat.st_nlink > 1 && !self.linked.insert(id(stat)) {
            return;
        }
        // The unit of st_blocks is 512 bytes on all file systems.
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        self.usage.bytes = self.usage.bytes.saturating_add(bytes);
        self.usage.inodes = self.usage.inodes.saturating_add(1);
    }
}

fn id(stat: &fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn open_child(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    fs::openat2(dir, name, flags, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests;
