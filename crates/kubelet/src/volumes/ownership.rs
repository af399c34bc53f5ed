//! `fsGroup` on volumes that have data of their own (upstream's `pkg/volume/volume_linux.go`).

use crate::{
    beneath::{self, through},
    pods::spec,
};
use lifecycle::Pod;
use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag},
    sys::stat::{FileStat, SFlag, fstat},
    unistd::{Gid, fchownat},
};
use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
};

/// What the group may do with a file, and with a directory: new files are the group's then, too.
const FILE: u32 = 0o660;
const DIRECTORY: u32 = 0o2770;
/// All bits of a file's permissions.
const PERMISSIONS: u32 = 0o7777;

/// The group that a Pod wants its volumes to belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ownership {
    group: u32,
    /// `fsGroupChangePolicy: OnRootMismatch`.
    unless_root_has_it: bool,
}

impl Ownership {
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let policy = spec(pod).security_context.as_ref().and_then(|s| s.fs_group_change_policy.as_deref());
        Some(Self { group: super::fs_group(pod)?, unless_root_has_it: policy == Some("OnRootMismatch") })
    }

    pub(super) fn group(self) -> u32 {
        self.group
    }

    /// Gives a directory to the group, with all that is in it on the same mount. Containers may have written it: nothing
    /// is reached through a link, not even one that is put there at the right moment.
    ///
    /// The directory itself comes last, so that one that was given half is known by it.
    pub(super) fn give(self, root: &OwnedFd) -> io::Result<()> {
        let stat = fstat(root)?;
        if self.unless_root_has_it && self.has(&stat) {
            return Ok(());
        }
        self.give_inner(root)?;
        self.give_one(root, &stat);
        Ok(())
    }

    /// Whether it is the group's, which may do at least what it would be given.
    fn has(self, root: &FileStat) -> bool {
        root.st_gid == self.group && is(root, SFlag::S_IFDIR) && root.st_mode & DIRECTORY == DIRECTORY
    }

    fn give_inner(self, dir: &OwnedFd) -> io::Result<()> {
        for name in beneath::names(dir)? {
            let file = match beneath::unmounted(dir, &name, OFlag::O_PATH) {
                // What is mounted in a volume is none of it; what is gone is nobody's.
                Err(Errno::EXDEV | Errno::ENOENT) => continue,
                file => file?,
            };
            let stat = fstat(&file)?;
            if is(&stat, SFlag::S_IFDIR) {
                self.give_inner(&file)?;
            }
            self.give_one(&file, &stat);
        }
        Ok(())
    }

    /// A file that cannot be given keeps no other back, as upstream: file systems do not let everything be given.
    fn give_one(self, file: &OwnedFd, stat: &FileStat) {
        let give = || {
            fchownat(file, "", None, Some(Gid::from_raw(self.group)), AtFlags::AT_EMPTY_PATH)?;
            if is(stat, SFlag::S_IFLNK) {
                return Ok(());
            }
            let more = if is(stat, SFlag::S_IFDIR) { DIRECTORY } else { FILE };
            fs::set_permissions(through(file), fs::Permissions::from_mode(stat.st_mode & PERMISSIONS | more))
        };
        if let Err::<(), io::Error>(error) = give() {
            tracing::debug!(%error, path = ?fs::read_link(through(file)), "a file cannot be given to the fsGroup");
        }
    }
}

fn is(stat: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::unix::fs::{MetadataExt, chown, symlink},
        path::Path,
    };

    const ALWAYS: Ownership = Ownership { group: 4711, unless_root_has_it: false };
    const ON_MISMATCH: Ownership = Ownership { group: 4711, unless_root_has_it: true };

    fn file(path: &Path, mode: u32) {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn seen(path: &Path) -> (u32, u32) {
        let meta = fs::symlink_metadata(path).unwrap();
        (meta.gid(), meta.mode() & PERMISSIONS)
    }

    #[test]
    fn the_group_may_do_with_files_and_directories_what_their_owner_may() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("d/e")).unwrap();
        fs::set_permissions(volume.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
        file(&volume.join("d/f"), 0o4755);
        file(&volume.join("g"), 0o400);
        file(&outside, 0o600);
        symlink(&outside, volume.join("link")).unwrap();
        ALWAYS.give(&beneath::root(&volume).unwrap()).unwrap();
        for (path, mode) in [("", 0o2775), ("d", 0o2770), ("d/e", 0o2775), ("d/f", 0o4775), ("g", 0o660)] {
            assert_eq!(seen(&volume.join(path)), (4711, mode), "{path:?}");
        }
        assert_eq!(seen(&volume.join("link")).0, 4711);
        assert_eq!(seen(&outside), (fs::metadata(dir.path()).unwrap().gid(), 0o600), "no link is followed");
    }

    #[track_caller]
    fn check_root(root: (u32, u32), is_given: bool) {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("f"), 0o600);
        chown(dir.path(), None, Some(root.0)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(root.1)).unwrap();
        ON_MISMATCH.give(&beneath::root(dir.path()).unwrap()).unwrap();
        assert_eq!(seen(&dir.path().join("f")).0 == 4711, is_given);
        assert_eq!(seen(dir.path()), (4711, root.1 | DIRECTORY));
    }

    #[test]
    fn a_volume_whose_root_is_the_groups_is_not_gone_through_if_the_pod_says_so() {
        check_root((4711, 0o2770), false);
        check_root((4711, 0o2775), false);
        check_root((4711, 0o770), true);
        check_root((4711, 0o2750), true);
        check_root((4712, 0o2770), true);
    }
}
