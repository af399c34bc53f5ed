//! `hostPath` volumes: a path of the node with a type check (upstream's `pkg/volume/hostpath/host_path.go`).
//!
//! A volume of a Pod is mounted from its own path. That of a claim is a symbolic link in the Pod's directory, so that it is
//! found there after a restart, without the API.

use crate::{
    os_error::PathError,
    volumes::{
        mount_error::SetUpError,
        plugin::{MountContext, MountTarget, Mounter, NewMounter, VolumePlugin, VolumeSpec},
    },
};
use futures::{FutureExt, future::ready};
use k8s_openapi::api::core::v1::{HostPathVolumeSource, Volume};
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

pub(super) struct HostPathPlugin;

impl VolumePlugin for HostPathPlugin {
    fn can_support(&self, spec: VolumeSpec<'_>) -> bool {
        spec.host_path().is_some()
    }

    fn new_mounter<'a>(&'a self, spec: VolumeSpec<'a>, _: &'a mut MountContext<'_>) -> NewMounter<'a> {
        let source = spec.host_path().cloned().unwrap_or_default();
        let mounter = HostPathMounter { host: HostPath::new(&source), is_linked: spec.volume().is_none() };
        ready(Ok(Box::new(mounter) as Box<dyn Mounter>)).boxed()
    }

    fn path(&self, volume: &Volume, dir: PathBuf) -> PathBuf {
        volume.host_path.as_ref().map_or(dir, |source| PathBuf::from(&source.path))
    }

    fn has_metrics(&self) -> bool {
        false
    }
}

struct HostPathMounter {
    host: HostPath,
    /// Whether the Pod's directory has a link to the path.
    is_linked: bool,
}

impl Mounter for HostPathMounter {
    fn set_up(&self, target: &MountTarget<'_>) -> Result<(), SetUpError> {
        self.host.check().map_err(SetUpError::plugin)?;
        if self.is_linked {
            link(&self.host.path, target.dir).map_err(SetUpError::plugin)?;
        }
        Ok(())
    }
}

fn link(path: &Path, dir: &Path) -> Result<(), HostPathError> {
    let make = || {
        dir.parent().map_or(Ok(()), fs::create_dir_all)?;
        symlink(path, dir)
    };
    make().map_err(|source| HostPathError::Link { path: dir.to_owned(), source })
}

/// `hostPath` volume.
struct HostPath {
    path: PathBuf,
    kind: String,
}

/// Failure to set up a `hostPath` volume, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum HostPathError {
    #[error("hostPath type check failed: {} is not a {expected}", .path.display())]
    WrongType { path: PathBuf, expected: &'static str },
    #[error("{0} is an invalid volume type")]
    InvalidType(String),
    /// The path could not be created.
    #[error(transparent)]
    Create(#[from] PathError),
    /// The symbolic link of a claim's volume could not be created.
    #[error("{}: {source}", .path.display())]
    Link { path: PathBuf, source: io::Error },
}

impl HostPath {
    fn new(source: &HostPathVolumeSource) -> Self {
        Self { path: PathBuf::from(&source.path), kind: source.type_.clone().unwrap_or_default() }
    }

    /// Checks the type of the path, as upstream (`pkg/volume/hostpath/host_path.go`).
    fn check(&self) -> Result<(), HostPathError> {
        let kind = fs::metadata(&self.path).map(|m| m.file_type());
        let is = |holds: bool, expected: &'static str| {
            if holds { Ok(()) } else { Err(HostPathError::WrongType { path: self.path.clone(), expected }) }
        };
        match (self.kind.as_str(), kind) {
            ("", _) => Ok(()),
            ("DirectoryOrCreate", Err(_)) => Ok(create(self, true)?),
            ("FileOrCreate", Err(_)) => Ok(create(self, false)?),
            ("Directory" | "DirectoryOrCreate", kind) => is(kind.is_ok_and(|k| k.is_dir()), "directory"),
            ("File" | "FileOrCreate", kind) => is(kind.is_ok_and(|k| !k.is_dir()), "file"),
            ("Socket", kind) => is(kind.is_ok_and(|k| k.is_socket()), "socket file"),
            ("CharDevice", kind) => is(kind.is_ok_and(|k| k.is_char_device()), "character device"),
            ("BlockDevice", kind) => is(kind.is_ok_and(|k| k.is_block_device()), "block device"),
            (other, _) => Err(HostPathError::InvalidType(other.to_owned())),
        }
    }
}

fn create(host: &HostPath, directory: bool) -> Result<(), PathError> {
    let make = || {
        if directory {
            return files::create_dir_all_with_mode(&host.path, 0o755);
        }
        fs::write(&host.path, "")?;
        fs::set_permissions(&host.path, fs::Permissions::from_mode(0o644))
    };
    let call = if directory { "mkdir" } else { "open" };
    make().map_err(|error| PathError::new(call, &host.path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_path_type_is_checked_and_created() {
        let dir = tempfile::tempdir().unwrap();
        let check = |name: &str, kind: &str| {
            let host = HostPath { path: dir.path().join(name), kind: kind.to_owned() };
            host.check().map_err(|e| e.to_string())
        };
        assert!(check("none", "").is_ok());
        assert!(check("none", "Directory").unwrap_err().contains("is not a directory"));
        assert!(check("d", "DirectoryOrCreate").is_ok());
        assert!(check("d", "Directory").is_ok());
        assert!(check("d", "File").unwrap_err().contains("is not a file"));
        assert!(check("f", "FileOrCreate").is_ok());
        assert!(check("f", "File").is_ok());
        let missing = dir.path().join("no/f").display().to_string();
        assert_eq!(check("no/f", "FileOrCreate"), Err(format!("open {missing}: no such file or directory")));
        assert_eq!(
            check("f/d", "DirectoryOrCreate"),
            Err(format!("mkdir {}/f/d: not a directory", dir.path().display()))
        );
        // Upstream accepts everything but a directory as a file.
        std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        assert!(check("s", "Socket").is_ok() && check("s", "File").is_ok());
        assert!(check("f", "CharDevice").unwrap_err().ends_with("f is not a character device"));
        assert!(check("f", "BlockDevice").unwrap_err().ends_with("f is not a block device"));
        assert!(check("../../../../../../dev/null", "CharDevice").is_ok());
        assert_eq!(check("f", "Pipe").unwrap_err(), "Pipe is an invalid volume type");
        assert!(check("f", "Socket").unwrap_err().contains("is not a socket file"));
    }
}
