//! Provisioner of local volumes: directories in the data directory.

use crate::data_dir::DataDir;
use anyhow::{Context, Result};
use controllers::{Provisioner, VolumeDirectories};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client, api::ListParams};
use server::ApiServer;
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// `provisioner` of its StorageClasses.
const PROVISIONER: &str = "podium/local";
/// Name of the StorageClass of a new cluster.
const STORAGE_CLASS: &str = "standard";

/// One directory per volume, named as the PersistentVolume. Names are valid API names, so they have no path separators.
struct LocalDirectories(PathBuf);

impl VolumeDirectories for LocalDirectories {
    fn create(&self, volume: &str) -> io::Result<PathBuf> {
        let path = self.0.join(volume);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        if !fs::symlink_metadata(&path)?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is not a directory", path.display())));
        }
        // Containers may run as any user.
        fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        Ok(path)
    }

    fn remove(&self, volume: &str, path: &Path) -> io::Result<()> {
        let expected = self.0.join(volume);
        if path != expected {
            return Err(io::Error::other(format!("{} is not {}", path.display(), expected.display())));
        }
        kubelet::remove_data(&expected)
    }
}

/// Returns the provisioner of a cluster. Creates its StorageClass in a new cluster only, so that a deleted one stays deleted.
///
/// # Errors
/// When the directory of the volumes cannot be created.
pub(crate) async fn provisioner(dir: &DataDir, node: &str, server: &ApiServer) -> Result<Provisioner> {
    let root = dir.volumes();
    if !root.exists() {
        server.bootstrap_storage_class(STORAGE_CLASS, PROVISIONER).await;
        let made = fs::DirBuilder::new().mode(0o700).create(&root);
        made.with_context(|| format!("failed to create {}", root.display()))?;
    }
    Ok(Provisioner::new(PROVISIONER, node, LocalDirectories(root)))
}

/// Logs volume directories without a PersistentVolume, for example because its finalizer was removed. Only the user may
/// delete such data.
pub(crate) async fn report_orphaned_volumes(root: PathBuf, client: Client) {
    let entries = fs::read_dir(&root).into_iter().flatten().flatten();
    // Directories are listed before the objects: a new directory gets its PersistentVolume shortly after.
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    if paths.is_empty() {
        return;
    }
    let params = ListParams::default();
    let claims = Api::<PersistentVolumeClaim>::all(client.clone()).list(&params).await;
    let volumes = Api::<PersistentVolume>::all(client).list(&params).await;
    let (Ok(claims), Ok(volumes)) = (claims, volumes) else { return };
    let orphaned = orphaned(&paths, &volumes.items, &claims.items);
    if !orphaned.is_empty() {
        tracing::warn!(
            paths = orphaned.join(", "),
            "found volume data without a PersistentVolume; delete it if it is not needed"
        );
    }
}

/// Returns the directories that belong neither to a PersistentVolume nor to an unbound claim, for which a volume may be
/// provisioned.
fn orphaned(paths: &[PathBuf], volumes: &[PersistentVolume], claims: &[PersistentVolumeClaim]) -> Vec<String> {
    let is_named =
        |path: &Path, name: Option<&str>| name.is_some() && path.file_name().and_then(|n| n.to_str()) == name;
    let is_used = |path: &Path, volume: &PersistentVolume| {
        let spec = volume.spec.as_ref();
        let local = spec.and_then(|spec| spec.local.as_ref()).map(|source| source.path.as_str());
        let host = spec.and_then(|spec| spec.host_path.as_ref()).map(|source| source.path.as_str());
        let mut within =
            [local, host].into_iter().flatten().filter(|volume_path| Path::new(volume_path).starts_with(path));
        is_named(path, volume.metadata.name.as_deref()) || within.next().is_some()
    };
    let is_pending = |path: &Path, claim: &PersistentVolumeClaim| {
        let is_unbound =
            claim.spec.as_ref().is_none_or(|spec| spec.volume_name.as_deref().unwrap_or_default().is_empty());
        is_unbound && is_named(path, claim.metadata.uid.as_ref().map(|uid| format!("pvc-{uid}")).as_deref())
    };
    let is_orphaned = |path: &&PathBuf| {
        !volumes.iter().any(|volume| is_used(path, volume)) && !claims.iter().any(|claim| is_pending(path, claim))
    };
    let mut orphaned: Vec<String> = paths.iter().filter(is_orphaned).map(|path| path.display().to_string()).collect();
    orphaned.sort();
    orphaned
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volume_data_without_volume_or_unbound_claim_is_orphaned() {
        let check = |volume: serde_json::Value, claim: serde_json::Value, expected: &[&str]| {
            let volume = serde_json::from_value(volume).unwrap();
            let claim = serde_json::from_value(claim).unwrap();
            assert_eq!(orphaned(&[PathBuf::from("/v/pvc-1")], &[volume], &[claim]), expected);
        };
        let unbound = || json!({"metadata": {"uid": "2"}, "spec": {}});
        check(json!({"metadata": {"name": "pvc-1"}}), unbound(), &[]);
        check(json!({"metadata": {"name": "pvc-2"}}), unbound(), &["/v/pvc-1"]);
        let volume = |source: &str, path: &str| json!({"metadata": {"name": "own"}, "spec": {source: {"path": path}}});
        check(volume("local", "/v/pvc-1"), unbound(), &[]);
        check(volume("hostPath", "/v/pvc-1/sub"), unbound(), &[]);
        check(volume("hostPath", "/v/pvc-11"), unbound(), &["/v/pvc-1"]);
        // An unbound claim, and a claim in phase Lost.
        check(json!({}), json!({"metadata": {"uid": "1"}, "spec": {}}), &[]);
        check(json!({}), json!({"metadata": {"uid": "1"}, "spec": {"volumeName": "pvc-1"}}), &["/v/pvc-1"]);
    }

    #[test]
    fn volume_creation_and_removal_are_idempotent() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = LocalDirectories(dir.path().join("volumes"));
        fs::create_dir(&volumes.0).unwrap();
        for _ in 0..2 {
            let path = volumes.create("pvc-1").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
            fs::write(path.join("f"), "kept").unwrap();
        }
        let path = dir.path().join("volumes/pvc-1");
        assert!(volumes.remove("pvc-2", &path).is_err() && path.exists());
        for _ in 0..2 {
            volumes.remove("pvc-1", &path).unwrap();
        }
        assert!(!dir.path().join("volumes/pvc-1").exists());
        let mode = || fs::metadata(dir.path()).unwrap().permissions().mode();
        let before = mode();
        std::os::unix::fs::symlink(dir.path(), &path).unwrap();
        volumes.create("pvc-1").unwrap_err();
        assert_eq!(mode(), before, "a link is not followed");
    }
}
