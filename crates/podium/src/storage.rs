//! Volumes for claims: directories below the data directory.

use crate::data_dir::DataDir;
use anyhow::{Context, Result};
use controllers::{Directories, Provisioner};
use server::ApiServer;
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// How classes name this provisioner.
const PROVISIONER: &str = "podium/local";
/// The class that a new cluster has.
const CLASS: &str = "standard";

/// One directory for each volume, by its name, which is one of the API's: no path.
struct BelowRoot(PathBuf);

impl Directories for BelowRoot {
    fn make(&self, volume: &str) -> io::Result<PathBuf> {
        let path = self.0.join(volume);
        fs::create_dir_all(&path)?;
        // Nobody knows as whom containers run.
        fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        Ok(path)
    }

    fn remove(&self, volume: &str, path: &Path) -> io::Result<()> {
        let own = self.0.join(volume);
        if path != own {
            return Err(io::Error::other(format!("{} is not {}", path.display(), own.display())));
        }
        kubelet::remove_data(&own)
    }
}

/// The provisioner of a cluster, with a class of its own where there was none before. A class that its user has removed
/// does not come back.
///
/// # Errors
/// When there is no place for volumes.
pub(crate) async fn provisioner(dir: &DataDir, node: &str, server: &ApiServer) -> Result<Provisioner> {
    let root = dir.volumes();
    if !root.exists() {
        server.bootstrap_storage_class(CLASS, PROVISIONER).await;
        fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
    }
    Ok(Provisioner::new(PROVISIONER, node, BelowRoot(root)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_everybodys_until_it_is_removed_and_both_can_be_done_twice() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = BelowRoot(dir.path().join("volumes"));
        for _ in 0..2 {
            let path = volumes.make("pvc-1").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
            fs::write(path.join("f"), "kept").unwrap();
        }
        let path = dir.path().join("volumes/pvc-1");
        assert!(volumes.remove("pvc-2", &path).is_err() && path.exists());
        for _ in 0..2 {
            volumes.remove("pvc-1", &path).unwrap();
        }
        assert!(!dir.path().join("volumes/pvc-1").exists());
    }
}
