//! `subPath` mounts: a directory or file of a volume is bind-mounted to a separate path before a container uses it.
//!
//! Containers write to their volumes. A symbolic link that one creates, even concurrently, must not make the kubelet mount
//! a path outside the volume: the kernel resolves the path below the volume, and the opened file is mounted.

use crate::{
    os_error::PathError,
    safe_open::{self, escape_error, proc_fd_path},
    volumes::make_dir,
};
use nix::{
    fcntl::OFlag,
    mount::{MsFlags, mount},
    sys::stat::{Mode, mkdirat},
};
use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Component, Path, PathBuf},
};

/// A `subPath` could not be mounted, with upstream's message (`makeMounts`), which does not reveal paths of the node.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubPathError {
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    Prepare { volume: String, container: String },
    #[error("failed to create subPath directory for volumeMount {volume:?} of container {container:?}")]
    Create { volume: String, container: String },
}

/// Cause of a [`SubPathError`], which is logged only.
#[derive(Debug, thiserror::Error)]
enum BindError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Unmount(#[from] files::mounts::UnmountError),
    #[error(transparent)]
    Directory(#[from] PathError),
}

/// Bind-mounts a path of a volume to `target`, and creates it if it is missing. An existing mount of an earlier attempt is
/// replaced.
pub(super) fn bind(volume: &Path, sub: &str, target: &Path, owner: &MountOwner<'_>) -> Result<(), SubPathError> {
    let exists = fs::metadata(volume.join(sub)).is_ok();
    open_and_bind(volume, sub, target).map_err(|error| {
        tracing::warn!(volume = owner.volume, container = owner.container, sub, %error, "failed to prepare subPath");
        let (volume, container) = (owner.volume.to_owned(), owner.container.to_owned());
        if exists { SubPathError::Prepare { volume, container } } else { SubPathError::Create { volume, container } }
    })
}

/// Volume and container of a mount.
pub(super) struct MountOwner<'a> {
    pub(super) volume: &'a str,
    pub(super) container: &'a str,
}

fn open_and_bind(volume: &Path, sub: &str, target: &Path) -> Result<(), BindError> {
    let found = open_or_create(volume, sub)?;
    let source = proc_fd_path(&found);
    files::mounts::unmount_tree(target)?;
    if fs::metadata(&source)?.is_dir() {
        make_dir(target, 0o750)?;
    } else {
        target.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(target, ""))?;
    }
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(&source), target, None::<&str>, flags, None::<&str>).map_err(io::Error::from)?;
    Ok(())
}

/// Opens a path below a volume. Missing directories are created with the volume's permissions (`SafeMakeDir`).
fn open_or_create(volume: &Path, sub: &str) -> io::Result<OwnedFd> {
    let root = safe_open::open_path(volume)?;
    let permissions = fs::metadata(proc_fd_path(&root))?.permissions();
    let at = |path: &Path| safe_open::open_beneath(&root, path, OFlag::O_PATH);
    let (mut reached, mut current) = (PathBuf::new(), at(Path::new("."))?);
    for part in Path::new(sub).components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            _ => return Err(escape_error()),
        };
        reached.push(name);
        current = match at(&reached) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                mkdirat(&current, name, Mode::from_bits_truncate(permissions.mode()))?;
                let made = at(&reached)?;
                fs::set_permissions(proc_fd_path(&made), permissions.clone())?;
                made
            }
            found => found?,
        };
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use std::{
        os::unix::fs::symlink,
        sync::atomic::{AtomicBool, Ordering},
        time::{Duration, Instant},
    };

    #[test]
    fn sub_path_stays_within_its_volume() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("..data")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(volume.join("..data/key"), "v").unwrap();
        symlink("..data/key", volume.join("key")).unwrap();
        symlink(&outside, volume.join("out")).unwrap();
        symlink("../outside", volume.join("up")).unwrap();
        symlink("nothing", volume.join("dangling")).unwrap();
        for (sub, expected) in [
            ("a/b", Some("a/b")),
            ("./a", Some("a")),
            ("key", Some("..data/key")),
            ("out", None),
            ("out/x", None),
            ("up", None),
            ("dangling", None),
            ("../outside", None),
            ("/etc", None),
        ] {
            let found = open_or_create(&volume, sub).and_then(|f| fs::read_link(proc_fd_path(&f))).ok();
            assert_eq!(found, expected.map(|e| volume.canonicalize().unwrap().join(e)), "{sub}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing is created outside");
    }

    #[test]
    fn directory_that_is_swapped_with_a_link_does_not_lead_outside() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (volume, outside) = (dir.join("volume"), dir.join("outside"));
        let (current, other) = (volume.join("swapped"), volume.join("other"));
        fs::create_dir_all(current.join("inside")).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, &other).unwrap();
        let is_done = AtomicBool::new(false);
        // Checked at the end: a panic would leave the other thread.
        let (mut found, mut refused, mut escaped) = (0, 0, Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    renameat2(AT_FDCWD, &current, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).unwrap();
                }
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            for attempt in 0.. {
                // The second path is created, and removed for the next attempt.
                let sub = if attempt % 2 == 0 { "swapped/inside" } else { "swapped/new" };
                match open_or_create(&volume, sub) {
                    Ok(file) => {
                        let path = fs::read_link(proc_fd_path(&file)).unwrap();
                        escaped.extend((!path.starts_with(&volume)).then_some(path));
                        found += 1;
                    }
                    Err(_) => refused += 1,
                }
                escaped.extend(Some(outside.join("new")).filter(|path| path.exists()));
                for directory in [&current, &other] {
                    let _ = fs::remove_dir(directory.join("new"));
                }
                if attempt >= 20_000 && found > 100 && refused > 100 || Instant::now() > deadline {
                    break;
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert!(escaped.is_empty(), "{escaped:?}");
        assert!(found > 100 && refused > 100, "{found} found, {refused} refused: the swaps were not concurrent");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing is created outside");
    }
}
