//! `exit.json` of a container.
//!
//! Its space is reserved when the container is created: a disk that is full later does not lose an exit.

use crate::config::{EXIT, Exit};
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::FileExt,
    path::Path,
};

/// Reserved file, in the container's directory.
const RESERVED: &str = "exit.reserved";
/// Reserved bytes: an exit with the longest error text.
const SIZE: usize = 4096;

/// Reserves the space of an exit.
///
/// # Errors
/// When the disk is full, or the file system fails.
pub(crate) fn reserve(dir: &Path) -> io::Result<()> {
    let mut file = files::create_private(&dir.join(RESERVED))?;
    match fallocate(&file, FallocateFlags::empty(), 0, SIZE as u64) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.write_all(&[0; SIZE]),
        other => Ok(other?),
    }
}

/// Releases the space of a container that was not created.
pub(crate) fn release(dir: &Path) {
    let _ = fs::remove_file(dir.join(RESERVED));
}

/// Stores an exit durably and atomically, in the reserved space.
///
/// # Errors
/// When the file system fails.
pub(crate) fn store(dir: &Path, exit: &Exit) -> io::Result<()> {
    let text = serde_json::to_vec(exit)?;
    let (reserved, path) = (dir.join(RESERVED), dir.join(EXIT));
    match File::options().write(true).open(&reserved) {
        Ok(file) if text.len() <= SIZE => {
            file.write_all_at(&text, 0)?;
            file.set_len(u64::try_from(text.len()).unwrap_or(u64::MAX))?;
            file.sync_all()?;
            fs::rename(&reserved, &path)?;
            File::open(dir)?.sync_all()
        }
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        // A container of an earlier version, or an earlier attempt that failed after the rename.
        Ok(_) | Err(_) => files::replace_private(&path, &text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit() -> Exit {
        Exit { exit_code: 3, finished_at: 7, oom_killed: false, store_error: None }
    }

    #[test]
    fn exit_is_stored_with_and_without_reservation() {
        for is_reserved in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            if is_reserved {
                reserve(dir.path()).unwrap();
                assert_eq!(fs::metadata(dir.path().join(RESERVED)).unwrap().len(), SIZE as u64);
            }
            // Repeated: the first attempt may have failed after the rename.
            for _ in 0..2 {
                store(dir.path(), &exit()).unwrap();
                let stored: Exit = serde_json::from_slice(&fs::read(dir.path().join(EXIT)).unwrap()).unwrap();
                assert_eq!(stored, exit());
            }
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
