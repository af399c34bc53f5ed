//! Where the root file systems of containers are mounted.
//!
//! The OCI runtime looks up the path of the root file system as the root user of the container's user namespace. On the node, that is
//! an unprivileged user, who may not pass the directory of the sandbox. So these root file systems are mounted in a directory that
//! only the users of the Pod's range may pass.

use crate::pod_files::unmount;
use bundle::Spec;
use runtime::IdMapping;
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

/// Root file system in a container's directory.
const ROOTFS: &str = "rootfs";
/// Root file systems of containers with user namespaces: `SANDBOX/CONTAINER`.
const MAPPED: &str = "/run/podium/rootfs";

/// Creates the mount point of a container's root file system.
///
/// # Errors
/// When the file system fails.
pub(crate) fn create(dir: &Path, sandbox: &str, id: &str, users: Option<IdMapping>) -> io::Result<PathBuf> {
    let Some(users) = users else {
        let path = dir.join(ROOTFS);
        files::create_private_dir_all(&path)?;
        return Ok(path);
    };
    files::create_dir_all_with_mode(Path::new(MAPPED), 0o711)?;
    for path in Path::new(MAPPED).ancestors().take(2) {
        // OCI runtimes create the first with mode 0700 for their state.
        fs::set_permissions(path, Permissions::from_mode(0o711))?;
    }
    let of_sandbox = Path::new(MAPPED).join(sandbox);
    // Never with another mode meanwhile: a container of the Pod may be starting.
    files::create_dir_all_with_mode(&of_sandbox, 0o710)?;
    chown(&of_sandbox, None, Some(users.host_id))?;
    let path = of_sandbox.join(id);
    files::create_private_dir_all(&path)?;
    Ok(path)
}

/// Unmounts the root file system of a container. Succeeds if it is not mounted.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn remove(dir: &Path, sandbox: &str, id: &str) -> io::Result<()> {
    unmount(&dir.join(ROOTFS))?;
    let mapped = Path::new(MAPPED).join(sandbox).join(id);
    unmount(&mapped)?;
    remove_empty(&mapped)
}

/// Removes the mount points of a sandbox, after its containers' root file systems are unmounted.
///
/// # Errors
/// When the file system fails.
pub(crate) fn remove_sandbox(sandbox: &str) -> io::Result<()> {
    remove_empty(&Path::new(MAPPED).join(sandbox))
}

/// Unmounts and removes all mount points of a sandbox.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn destroy_sandbox(sandbox: &str) -> io::Result<()> {
    let dir = Path::new(MAPPED).join(sandbox);
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        unmount(&entry.path())?;
        remove_empty(&entry.path())?;
    }
    remove_empty(&dir)
}

/// Removes a directory that must be empty: a root file system that is still mounted must not be removed.
fn remove_empty(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns the root file system of an OCI configuration in a container's directory.
pub(crate) fn of_spec(dir: &Path, spec: &Spec) -> PathBuf {
    spec.root().as_ref().map_or_else(|| dir.join(ROOTFS), |root| dir.join(root.path()))
}
