//! Removal of directory trees that containers have made.

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2, renameat},
    sys::stat::Mode,
    unistd::{UnlinkatFlags, unlinkat},
};
use std::{
    ffi::OsStr,
    fs,
    io::{self, ErrorKind},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

/// Maximum depth of the recursion. A directory below it is moved up first: containers make directories of any depth, which
/// must exhaust neither the stack nor the descriptors.
const MAX_DEPTH: u32 = 64;

/// Removes a directory with everything below it. Follows no links, and enters no mount.
///
/// # Errors
/// If it does not exist, if something is mounted below it, or if the file system fails.
pub fn remove_dir_all(dir: &Path) -> io::Result<()> {
    let name = dir.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "a path without a name"))?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = open(parent, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    remove_entry(&parent, name)
}

/// Removes an entry of a directory: a file, a link, or a directory with everything below it. As [`remove_dir_all`].
///
/// # Errors
/// As of [`remove_dir_all`].
pub fn remove_entry(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => {}
        done => return Ok(done?),
    }
    let mut removal = Removal { top: open_dir(dir, name)?, moved: 0 };
    loop {
        let before = removal.moved;
        let top = removal.top.try_clone()?;
        removal.clear(&top, 0)?;
        match unlinkat(dir, name, UnlinkatFlags::RemoveDir) {
            // Directories were moved into it.
            Err(Errno::ENOTEMPTY) if removal.moved != before => {}
            done => return Ok(done?),
        }
    }
}

/// A tree that is being removed.
struct Removal {
    top: OwnedFd,
    /// Number of names that were used for directories that were moved up.
    moved: u64,
}

impl Removal {
    /// Removes everything in a directory, or moves it up.
    fn clear(&mut self, dir: &OwnedFd, depth: u32) -> io::Result<()> {
        for entry in fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))? {
            let name = entry?.file_name();
            match unlinkat(dir, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => continue,
                Err(Errno::EISDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if depth < MAX_DEPTH {
                match open_dir(dir, &name) {
                    // Another process removes the same tree.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    child => self.clear(&child?, depth + 1)?,
                }
            }
            match unlinkat(dir, name.as_os_str(), UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(Errno::ENOTEMPTY) if depth >= MAX_DEPTH => self.move_up(dir, &name)?,
                // A process writes into the tree: the caller tries again when it has ended.
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Moves a directory to the top of the tree. An empty directory of the new name is replaced, which removes it, too.
    fn move_up(&mut self, dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
        loop {
            self.moved = self.moved.wrapping_add(1);
            match renameat(dir, name, &self.top, format!(".removed-{}", self.moved).as_str()) {
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR | Errno::EISDIR) => {}
                done => return Ok(done?),
            }
        }
    }
}

/// Opens a directory without following links or entering a mount.
fn open_dir(dir: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV);
    openat2(dir, name, how).map_err(|errno| match errno {
        Errno::EXDEV => io::Error::other(format!("something is mounted at {}", name.display())),
        errno => errno.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::mkdirat;
    use std::os::unix::fs::symlink;

    /// Makes directories below each other, deeper than the longest path, each with a file.
    fn make_deep(root: &Path, depth: u32) {
        let mut dir = open(root, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&dir, "d", Mode::S_IRWXU).unwrap();
            dir = open_dir(&dir, OsStr::new("d")).unwrap();
            fs::write(format!("/proc/self/fd/{}/f", dir.as_raw_fd()), "").unwrap();
        }
    }

    #[test]
    fn tree_of_any_depth_is_removed_with_a_small_stack() {
        // In memory: some disks take milliseconds for each directory.
        let base = tempfile::tempdir_in("/dev/shm").unwrap();
        let tree = base.path().join("tree");
        fs::create_dir(&tree).unwrap();
        make_deep(&tree, 5000);
        // Names that the removal uses, too.
        fs::write(tree.join(".removed-1"), "").unwrap();
        fs::create_dir(tree.join(".removed-2")).unwrap();
        fs::create_dir_all(tree.join(".removed-3/x")).unwrap();
        let removed = tree.clone();
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(move || remove_dir_all(&removed));
        thread.unwrap().join().unwrap().unwrap();
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let (tree, kept) = (base.path().join("tree"), base.path().join("kept"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        symlink(&kept, tree.join("a/b/link")).unwrap();
        symlink(&kept, base.path().join("link")).unwrap();
        remove_dir_all(&tree).unwrap();
        remove_dir_all(&base.path().join("link")).unwrap();
        assert!(kept.join("file").exists() && !tree.exists() && !base.path().join("link").exists());
        assert_eq!(remove_dir_all(&tree).unwrap_err().kind(), ErrorKind::NotFound);
        remove_dir_all(Path::new("/")).unwrap_err();
    }
}
