//! `subPath`: a directory or file of a volume, bound to a path of its own before a container gets it.
//!
//! Containers write to their volumes. A link that one puts there, or exchanges at the right moment, must not lead the
//! next one out of the volume: the kernel itself resolves the path below the volume, and what it has found is bound.

use crate::{
    beneath::{self, leads_out, through},
    volumes::{make_dir, unmount_below},
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

/// Binds a path of a volume, which is made if need be, to `target`. An earlier attempt's binding is exchanged; its
/// container keeps what it has.
///
/// # Errors
/// In upstream's words (`makeMounts`), which tell a Pod's owner nothing of the node's files; the log has the rest.
pub(super) fn bind(volume: &Path, sub: &str, target: &Path, of: &MountOf<'_>) -> Result<(), String> {
    let there = fs::metadata(volume.join(sub)).is_ok();
    bind_found(volume, sub, target).map_err(|error| {
        tracing::warn!(volume = of.volume, container = of.container, sub, %error, "a subPath cannot be used");
        let what = if there { "prepare subPath" } else { "create subPath directory" };
        format!("failed to {what} for volumeMount {:?} of container {:?}", of.volume, of.container)
    })
}

/// Who mounts what.
pub(super) struct MountOf<'a> {
    pub(super) volume: &'a str,
    pub(super) container: &'a str,
}

fn bind_found(volume: &Path, sub: &str, target: &Path) -> Result<(), String> {
    let failed = |e: io::Error| e.to_string();
    let found = open_beneath(volume, sub).map_err(failed)?;
    let source = through(&found);
    unmount_below(target)?;
    if fs::metadata(&source).map_err(failed)?.is_dir() {
        make_dir(target, 0o750)?;
    } else {
        target.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(target, "")).map_err(failed)?;
    }
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(&source), target, None::<&str>, flags, None::<&str>).map_err(|e| failed(e.into()))
}

/// Opens a path below a volume; directories that are not there are made with the volume's own permissions.
fn open_beneath(volume: &Path, sub: &str) -> io::Result<OwnedFd> {
    let root = beneath::root(volume)?;
    let permissions = fs::metadata(through(&root))?.permissions();
    let at = |path: &Path| beneath::find(&root, path, OFlag::O_PATH);
    let (mut reached, mut here) = (PathBuf::new(), at(Path::new("."))?);
    for part in Path::new(sub).components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            _ => return Err(leads_out()),
        };
        reached.push(name);
        here = match at(&reached) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                mkdirat(&here, name, Mode::from_bits_truncate(permissions.mode()))?;
                let made = at(&reached)?;
                fs::set_permissions(through(&made), permissions.clone())?;
                made
            }
            found => found?,
        };
    }
    Ok(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_sub_path_stays_in_its_volume() {
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
            let found = open_beneath(&volume, sub).and_then(|f| fs::read_link(through(&f))).ok();
            assert_eq!(found, expected.map(|e| volume.canonicalize().unwrap().join(e)), "{sub}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing was made outside");
    }
}
