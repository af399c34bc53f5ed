//! Volumes for claims: directories below the data directory.

use crate::data_dir::DataDir;
use anyhow::{Context, Result};
use controllers::{Directories, Provisioner};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client, api::ListParams};
use server::ApiServer;
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
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
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        if !fs::symlink_metadata(&path)?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is no directory", path.display())));
        }
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
        let made = fs::DirBuilder::new().mode(0o700).create(&root);
        made.with_context(|| format!("failed to create {}", root.display()))?;
    }
    Ok(Provisioner::new(PROVISIONER, node, BelowRoot(root)))
}

/// Tells of data that nobody knows any more: its volume went without it, because somebody took its finalizer away, say. It
/// is nobody's to remove but the user's.
pub(crate) async fn tell_strays(root: PathBuf, client: Client) {
    let entries = fs::read_dir(&root).into_iter().flatten().flatten();
    // Those first: what is made from now on has its volume a moment later.
    let there: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    if there.is_empty() {
        return;
    }
    let everything = ListParams::default();
    let claims = Api::<PersistentVolumeClaim>::all(client.clone()).list(&everything).await;
    let volumes = Api::<PersistentVolume>::all(client).list(&everything).await;
    let (Ok(claims), Ok(volumes)) = (claims, volumes) else { return };
    let strays = strays(&there, &volumes.items, &claims.items);
    if !strays.is_empty() {
        tracing::warn!(
            "no PersistentVolume knows of this data, which stays until you remove it: {}",
            strays.join(", ")
        );
    }
}

/// The directories that are of no volume, and of none that is about to be: a claim that has no volume yet may have been on its
/// way to one.
fn strays(there: &[PathBuf], volumes: &[PersistentVolume], claims: &[PersistentVolumeClaim]) -> Vec<String> {
    let named = |path: &Path, name: Option<&str>| name.is_some() && path.file_name().and_then(|n| n.to_str()) == name;
    let is_known = |path: &Path, volume: &PersistentVolume| {
        let spec = volume.spec.as_ref();
        let local = spec.and_then(|spec| spec.local.as_ref()).map(|source| source.path.as_str());
        let host = spec.and_then(|spec| spec.host_path.as_ref()).map(|source| source.path.as_str());
        let mut within = [local, host].into_iter().flatten().filter(|place| Path::new(place).starts_with(path));
        named(path, volume.metadata.name.as_deref()) || within.next().is_some()
    };
    let is_coming = |path: &Path, claim: &PersistentVolumeClaim| {
        let waits = claim.spec.as_ref().is_none_or(|spec| spec.volume_name.as_deref().unwrap_or_default().is_empty());
        waits && named(path, claim.metadata.uid.as_ref().map(|uid| format!("pvc-{uid}")).as_deref())
    };
    let is_stray = |path: &&PathBuf| {
        !volumes.iter().any(|volume| is_known(path, volume)) && !claims.iter().any(|claim| is_coming(path, claim))
    };
    let mut strays: Vec<String> = there.iter().filter(is_stray).map(|path| path.display().to_string()).collect();
    strays.sort();
    strays
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn data_is_a_stray_when_no_volume_knows_of_it_and_none_is_about_to() {
        let check = |volume: serde_json::Value, claim: serde_json::Value, expected: &[&str]| {
            let volume = serde_json::from_value(volume).unwrap();
            let claim = serde_json::from_value(claim).unwrap();
            assert_eq!(strays(&[PathBuf::from("/v/pvc-1")], &[volume], &[claim]), expected);
        };
        let waits = || json!({"metadata": {"uid": "2"}, "spec": {}});
        check(json!({"metadata": {"name": "pvc-1"}}), waits(), &[]);
        check(json!({"metadata": {"name": "pvc-2"}}), waits(), &["/v/pvc-1"]);
        let of = |source: &str, path: &str| json!({"metadata": {"name": "own"}, "spec": {source: {"path": path}}});
        check(of("local", "/v/pvc-1"), waits(), &[]);
        check(of("hostPath", "/v/pvc-1/sub"), waits(), &[]);
        check(of("hostPath", "/v/pvc-11"), waits(), &["/v/pvc-1"]);
        // A claim that is on its way to its volume, and one that has lost it.
        check(json!({}), json!({"metadata": {"uid": "1"}, "spec": {}}), &[]);
        check(json!({}), json!({"metadata": {"uid": "1"}, "spec": {"volumeName": "pvc-1"}}), &["/v/pvc-1"]);
    }

    #[test]
    fn a_volume_is_everybodys_until_it_is_removed_and_both_can_be_done_twice() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = BelowRoot(dir.path().join("volumes"));
        fs::create_dir(&volumes.0).unwrap();
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
        let mode = || fs::metadata(dir.path()).unwrap().permissions().mode();
        let before = mode();
        std::os::unix::fs::symlink(dir.path(), &path).unwrap();
        volumes.make("pvc-1").unwrap_err();
        assert_eq!(mode(), before, "a link is not followed");
    }
}
