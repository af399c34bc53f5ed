//! Removes all sandboxes of a data directory, whose engine does not run (`podium down`).

use crate::{
    keeper_process::{kill_containers, kill_keeper},
    oci_runtime,
    records::{self, SandboxRecord},
    rootfs,
    state::{Sandbox, pods_dir},
};
use images::ImageStore;
use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Directory of the engine in a data directory.
const DIR: &str = "engine";
/// File with the path of the image store.
const IMAGE_STORE: &str = "image-store";
/// Maximum length of a path.
const MAX_PATH: u64 = 4096;

/// Kills all containers and keepers of a data directory, and removes their mounts, uses of images and directories. The
/// network is the caller's. Does nothing if there is no engine.
///
/// # Errors
/// When processes do not end, or the file system fails. The call can be repeated.
pub async fn destroy(data_dir: &Path) -> io::Result<()> {
    let dir = pods_dir(data_dir);
    if !dir.exists() {
        return Ok(());
    }
    // Keepers first: they must not report the ends of their containers to a Podium that starts meanwhile.
    for entry in fs::read_dir(&dir)? {
        kill_keeper(&entry?.path()).await;
    }
    kill_containers(data_dir).await?;
    files::mounts::unmount_tree(&dir).map_err(io::Error::other)?;
    for entry in fs::read_dir(&dir)? {
        let sandbox = entry?.file_name().to_string_lossy().into_owned();
        rootfs::destroy_sandbox(&sandbox)?;
        oci_runtime::remove_state_dir(&sandbox)?;
    }
    release_images(data_dir)?;
    files::remove_dir_all(&data_dir.join(DIR))
}

/// Returns whether a data directory has sandboxes of the engine, which need not be running.
#[must_use]
pub fn has_sandboxes(data_dir: &Path) -> bool {
    fs::read_dir(pods_dir(data_dir)).is_ok_and(|mut entries| entries.next().is_some())
}

/// Returns whether a data directory has this sandbox.
#[must_use]
pub fn has_sandbox(data_dir: &Path, id: &str) -> bool {
    pods_dir(data_dir).join(id).is_dir()
}

/// Returns whether a data directory has sandboxes whose cgroup driver is not this one.
#[must_use]
pub fn has_other_cgroup_driver(data_dir: &Path, systemd: bool) -> bool {
    let sandboxes = fs::read_dir(pods_dir(data_dir)).into_iter().flatten().flatten();
    let mut records = sandboxes.filter_map(|entry| {
        let record = records::load::<SandboxRecord>(&Sandbox::record_path(&entry.path()));
        record.ok().flatten()
    });
    records.any(|record| record.systemd_cgroup != systemd)
}

/// Records the image store of a data directory.
pub(crate) fn record_image_store(data_dir: &Path, root: &Path) -> io::Result<()> {
    files::replace_private(&data_dir.join(DIR).join(IMAGE_STORE), root.as_os_str().as_bytes())
}

/// Returns the image store of a data directory, if the engine has run there.
#[must_use]
pub fn image_store(data_dir: &Path) -> Option<PathBuf> {
    let root = files::read_bounded(&data_dir.join(DIR).join(IMAGE_STORE), MAX_PATH).ok()?;
    let root = Path::new(OsStr::from_bytes(&root));
    root.is_absolute().then(|| root.to_owned())
}

/// Releases the images of a data directory's cluster.
fn release_images(data_dir: &Path) -> io::Result<()> {
    let Some(root) = image_store(data_dir).filter(|root| root.is_dir()) else { return Ok(()) };
    let images = ImageStore::open(&root).map_err(io::Error::other)?;
    for (user, _) in images.uses(data_dir).map_err(io::Error::other)? {
        images.release(data_dir, &user).map_err(io::Error::other)?;
    }
    images.forget_cluster(data_dir).map_err(io::Error::other)
}
