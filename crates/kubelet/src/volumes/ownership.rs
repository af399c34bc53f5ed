//! `fsGroup` ownership of persistent volumes (upstream's `pkg/volume/volume_linux.go`).

use crate::{
    pods::spec,
    safe_open::{self, proc_fd_path},
};
use lifecycle::Pod;
use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::{FileStat, Mode, SFlag, fstat},
    unistd::{Gid, fchownat},
};
use std::{
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
};

/// Permissions that the group gets for files and directories; new files inherit a directory's group.
const FILE_MASK: u32 = 0o660;
const DIRECTORY_MASK: u32 = 0o2770;
/// All permission bits.
const PERMISSIONS: u32 = 0o7777;

/// Group ownership of a Pod's volumes.
#[derive(Debug, Clone, Copy)]
pub(super) struct VolumeOwnership {
    group: u32,
    /// `fsGroupChangePolicy: OnRootMismatch`.
    on_root_mismatch: bool,
}

impl VolumeOwnership {
    pub(super) fn new(pod: &Pod) -> Option<Self> {
        let policy = spec(pod).security_context.as_ref().and_then(|s| s.fs_group_change_policy.as_deref());
        Some(Self { group: super::fs_group(pod)?, on_root_mismatch: policy == Some("OnRootMismatch") })
    }

    pub(super) fn group(self) -> u32 {
        self.group
    }

    /// Sets the group of a directory tree within its mount. Containers may have written it: symbolic links are never followed,
    /// even if they are created concurrently.
    ///
    /// The directory itself is last: a partial change is detected by it.
    pub(super) fn change_permissions(self, root: &OwnedFd) -> io::Result<()> {
        let stat = fstat(root)?;
        if self.on_root_mismatch && self.matches(&stat) {
            return Ok(());
        }
        self.change_entries(root)?;
        self.change_file(root, &stat);
        Ok(())
    }

    /// Returns whether the directory already has the group and at least the permissions.
    fn matches(self, root: &FileStat) -> bool {
        root.st_gid == self.group && has_type(root, SFlag::S_IFDIR) && root.st_mode & DIRECTORY_MASK == DIRECTORY_MASK
    }

    /// Has one open directory at a time, and goes up through `..`: containers make directories of any depth.
    fn change_entries(self, root: &OwnedFd) -> io::Result<()> {
        let mut levels = vec![Level::new(root, &fstat(root)?)?];
        let mut current = root.try_clone()?;
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.pending.pop() else {
                levels.pop();
                let Some(above) = levels.last() else { break };
                current = openat(&current, "..", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
                if Level::id(&fstat(&current)?) != above.id {
                    return Err(io::Error::other("a directory was moved meanwhile"));
                }
                continue;
            };
            let file = match safe_open::open_entry(&current, &name, OFlag::O_PATH) {
                // Nested mounts do not belong to the volume; removed files are skipped.
                Err(Errno::EXDEV | Errno::ENOENT) => continue,
                file => file?,
            };
            let stat = fstat(&file)?;
            self.change_file(&file, &stat);
            if has_type(&stat, SFlag::S_IFDIR) {
                levels.push(Level::new(&file, &stat)?);
                current = file;
            }
        }
        Ok(())
    }

    /// Sets the group of one file. A failure is ignored, as upstream: not every file system supports ownership.
    fn change_file(self, file: &OwnedFd, stat: &FileStat) {
        let change = || {
            fchownat(file, "", None, Some(Gid::from_raw(self.group)), AtFlags::AT_EMPTY_PATH)?;
            if has_type(stat, SFlag::S_IFLNK) {
                return Ok(());
            }
            let added_mode = if has_type(stat, SFlag::S_IFDIR) { DIRECTORY_MASK } else { FILE_MASK };
            fs::set_permissions(proc_fd_path(file), fs::Permissions::from_mode(stat.st_mode & PERMISSIONS | added_mode))
        };
        if let Err::<(), io::Error>(error) = change() {
            tracing::debug!(%error, path = ?fs::read_link(proc_fd_path(file)), "failed to set fsGroup of a file");
        }
    }
}

/// A directory at or above the current one.
struct Level {
    id: (u64, u64),
    /// Entries that are not changed yet.
    pending: Vec<OsString>,
}

impl Level {
    fn new(dir: &OwnedFd, stat: &FileStat) -> io::Result<Self> {
        Ok(Self { id: Self::id(stat), pending: safe_open::entry_names(dir)? })
    }

    fn id(stat: &FileStat) -> (u64, u64) {
        (stat.st_dev, stat.st_ino)
    }
}

fn has_type(stat: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::unix::fs::{MetadataExt, chown, symlink},
        path::Path,
    };

    const ALWAYS: VolumeOwnership = VolumeOwnership { group: 4711, on_root_mismatch: false };
    const ON_MISMATCH: VolumeOwnership = VolumeOwnership { group: 4711, on_root_mismatch: true };

    fn file(path: &Path, mode: u32) {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn group_and_mode(path: &Path) -> (u32, u32) {
        let meta = fs::symlink_metadata(path).unwrap();
        (meta.gid(), meta.mode() & PERMISSIONS)
    }

    #[test]
    fn fs_group_gets_access_to_all_files_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("d/e")).unwrap();
        fs::set_permissions(volume.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
        file(&volume.join("d/f"), 0o4755);
        file(&volume.join("g"), 0o400);
        file(&outside, 0o600);
        symlink(&outside, volume.join("link")).unwrap();
        ALWAYS.change_permissions(&safe_open::open_path(&volume).unwrap()).unwrap();
        for (path, mode) in [("", 0o2775), ("d", 0o2770), ("d/e", 0o2775), ("d/f", 0o4775), ("g", 0o660)] {
            assert_eq!(group_and_mode(&volume.join(path)), (4711, mode), "{path:?}");
        }
        assert_eq!(group_and_mode(&volume.join("link")).0, 4711);
        assert_eq!(group_and_mode(&outside), (fs::metadata(dir.path()).unwrap().gid(), 0o600), "no link is followed");
    }

    #[test]
    fn group_of_very_deep_directories_is_set_with_a_small_stack() {
        const DEPTH: u32 = 3000;
        // In memory: some disks take milliseconds for each directory.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let open = |parent: &OwnedFd| safe_open::open_entry(parent, "d".as_ref(), OFlag::O_PATH).unwrap();
        let root = safe_open::open_path(dir.path()).unwrap();
        let mut deepest = root.try_clone().unwrap();
        for _ in 0..DEPTH {
            nix::sys::stat::mkdirat(&deepest, "d", Mode::S_IRWXU).unwrap();
            deepest = open(&deepest);
        }
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(move || ALWAYS.change_permissions(&root));
        thread.unwrap().join().unwrap().unwrap();
        assert_eq!(fstat(&deepest).unwrap().st_gid, 4711);
        files::remove_dir_all(dir.path()).unwrap();
    }

    #[track_caller]
    fn check_root(root: (u32, u32), is_given: bool) {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("f"), 0o600);
        chown(dir.path(), None, Some(root.0)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(root.1)).unwrap();
        ON_MISMATCH.change_permissions(&safe_open::open_path(dir.path()).unwrap()).unwrap();
        assert_eq!(group_and_mode(&dir.path().join("f")).0 == 4711, is_given);
        assert_eq!(group_and_mode(dir.path()), (4711, root.1 | DIRECTORY_MASK));
    }

    #[test]
    fn on_root_mismatch_skips_a_volume_with_matching_root() {
        check_root((4711, 0o2770), false);
        check_root((4711, 0o2775), false);
        check_root((4711, 0o770), true);
        check_root((4711, 0o2750), true);
        check_root((4712, 0o2770), true);
    }
}
