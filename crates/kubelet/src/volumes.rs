//! Volumes and directories of Pods.

mod atomic_writer;
mod claim;
mod downward_api;
mod files_plugin;
mod mount_error;
mod nested;
mod ownership;
mod payload;
mod plugin;
mod plugins;
pub(crate) mod refresh;
mod removal;
mod tokens;

pub(crate) use claim::is_bind_mounted;
use claim::is_claim;
pub(crate) use downward_api::{DownwardApiError, field_ref_value, resource_field_ref_value};
pub(crate) use mount_error::MountErrors;
pub(crate) use nested::{NestedMountPointError, create_nested_sub_paths};
pub(crate) use removal::RemovalError;
pub use removal::remove_data;
pub(crate) use tokens::TokenCache;

use crate::{Shared, blocking, os_error::PathError, pods::spec};
use api::{quantity::Amount, resources::ResourceField};
use k8s_openapi::api::core::v1::Volume;
use lifecycle::Pod;
use mount_error::MountError;
use ownership::VolumeOwnership;
use plugin::{MountContext, MountTarget, Mounter, VolumePlugin, VolumeSpec};
use plugins::{find_by_spec, find_files_plugin};
use removal::remove_tree;
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A volume has no path on the node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumePathError {
    /// The Pod has no such volume.
    #[error("volume {0:?} does not exist")]
    NotFound(String),
    /// The volume of a claim is not mounted.
    #[error("volume {0:?} is not mounted")]
    NotMounted(String),
}

/// Returns the path of a volume on the node.
pub(crate) fn volume_path(shared: &Shared, pod: &Pod, name: &str) -> Result<PathBuf, VolumePathError> {
    let volume = spec(pod).volumes.iter().flatten().find(|v| v.name == name);
    let volume = volume.ok_or_else(|| VolumePathError::NotFound(name.to_owned()))?;
    let dir = shared.paths.volume(pod.uid(), name);
    if is_claim(volume) {
        // The plain directory must not be used: its data would be lost with the Pod.
        return claim::mounted_path(&dir).ok_or_else(|| VolumePathError::NotMounted(name.to_owned()));
    }
    match find_by_spec(VolumeSpec::Volume(volume)) {
        Ok(plugin) => Ok(plugin.path(volume, dir)),
        Err(_) => Ok(dir),
    }
}

/// Returns whether the disk usage of a volume is that of its Pod: not that of a claim, nor of data of the node.
pub(crate) fn has_metrics(volume: &Volume) -> bool {
    !is_claim(volume) && find_by_spec(VolumeSpec::Volume(volume)).is_ok_and(VolumePlugin::has_metrics)
}

pub(crate) fn is_readonly(pod: &Pod, name: &str) -> bool {
    let is_readonly = |volume: &Volume| find_files_plugin(volume).is_some() || claim::is_read_only(volume);
    spec(pod).volumes.iter().flatten().any(|v| v.name == name && is_readonly(v))
}

/// Mount of one volume, with everything that it needs from the API.
struct MountTask {
    /// Name of the volume, or of the claim's PersistentVolume.
    name: String,
    /// The volume's directory of the Pod.
    dir: PathBuf,
    mounter: Box<dyn Mounter>,
}

impl MountTask {
    fn run(self, ownership: Option<VolumeOwnership>, pods: &Path) -> Result<(), MountError> {
        let (volume, target) = (self.name, MountTarget { dir: &self.dir, ownership, pods });
        if let Err(source) = self.mounter.check() {
            return Err(MountError::NewMounter { volume, source });
        }
        self.mounter.set_up(&target).map_err(|source| MountError::SetUp { volume, source })
    }
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let group = spec(pod).security_context.as_ref().and_then(|s| s.fs_group);
    group.and_then(|g| u32::try_from(g).ok())
}

/// Returns the Pod's memory limit, by default the node's allocatable memory.
fn memory_limit(shared: &Shared, pod: &Pod) -> Option<Amount> {
    let limits = api::resources::pod_resources(spec(pod), ResourceField::Limits);
    let every = api::pod::containers(spec(pod))
        .all(|(_, c)| api::resources::container_resources(c, ResourceField::Limits).contains_key("memory"));
    let limit = limits.get("memory").copied().filter(|_| every || spec(pod).resources.is_some());
    limit.or_else(|| shared.node_resources.allocatable.get("memory").copied())
}

/// Creates the Pod's directories and mounts its volumes (`WaitForAttachAndMount`, `MountVolume`). Existing volumes are
/// kept, and a failing one does not prevent the others.
pub(crate) async fn set_up(shared: &Shared, pod: &Pod) -> Result<(), MountErrors> {
    let mut context = MountContext::new(shared, pod);
    let (mut tasks, mut errors) = (Vec::new(), Vec::new());
    for volume in spec(pod).volumes.iter().flatten() {
        match prepare(volume, &mut context).await {
            Ok(task) => tasks.extend(task),
            Err(e) => errors.push(e),
        }
    }
    let (pod_dir, logs) = (shared.paths.pod(pod.uid()), shared.paths.pod_logs(pod.object()));
    let (ownership, pods) = (VolumeOwnership::new(pod), shared.paths.pods());
    let result = blocking::run(move || {
        make_dir(&pod_dir, 0o700)?;
        make_log_dir(&logs)?;
        let results = tasks.into_iter().map(|task| task.run(ownership, &pods));
        Ok::<_, MountError>(results.filter_map(Result::err).collect::<Vec<_>>())
    });
    match result.await {
        Ok(found) => errors.extend(found),
        Err(error) => errors.push(error),
    }
    MountErrors::check(errors)
}

/// Prepares the mount of a volume; `None` if the volume of a claim is already mounted.
async fn prepare(volume: &Volume, context: &mut MountContext<'_>) -> Result<Option<MountTask>, MountError> {
    let (shared, pod) = (context.shared, context.pod);
    let dir = shared.paths.volume(pod.uid(), &volume.name);
    let Some(claim) = api::persistent_volume_claim::claim_name(pod.name(), volume) else {
        let task = new_task(&volume.name, dir, VolumeSpec::Volume(volume), context).await?;
        return Ok(Some(task));
    };
    let Some(found) = claim::find(shared, pod, volume, &claim).await? else { return Ok(None) };
    let name = found.metadata.name.as_deref().unwrap_or_default();
    let spec = VolumeSpec::PersistentVolume { volume: &found, read_only: claim::is_read_only(volume) };
    Ok(Some(new_task(name, dir, spec, context).await?))
}

async fn new_task(
    name: &str,
    dir: PathBuf,
    spec: VolumeSpec<'_>,
    context: &mut MountContext<'_>,
) -> Result<MountTask, MountError> {
    let plugin = mountable_plugin(name, spec)?;
    let mounter = plugin.new_mounter(spec, context).await.map_err(|error| MountError::set_up(name, error))?;
    Ok(MountTask { name: name.to_owned(), dir, mounter })
}

/// Returns the plugin of a volume, which must support its mount options.
fn mountable_plugin(name: &str, spec: VolumeSpec<'_>) -> Result<&'static dyn VolumePlugin, MountError> {
    let plugin = find_by_spec(spec).map_err(|error| MountError::set_up(name, error))?;
    if !spec.mount_options().is_empty() && !plugin.supports_mount_options() {
        return Err(MountError::MountOptions { volume: name.to_owned() });
    }
    Ok(plugin)
}

/// Unmounts and removes the Pod's volumes (`WaitForUnmount`, `UnmountVolume`).
pub(crate) async fn tear_down(shared: &Shared, pod: &Pod) -> Result<(), RemovalError> {
    let (bound, volumes) = (shared.paths.sub_paths(pod.uid()), shared.paths.volumes(pod.uid()));
    blocking::run(move || remove_tree(&bound).and_then(|()| remove_tree(&volumes))).await
}

/// Removes the remaining directories and logs of a removed Pod (`cleanupOrphanedPodDirs`).
pub(crate) async fn remove_pod_dirs(shared: &Shared, pod: &Pod) -> Result<(), RemovalError> {
    let (pod_dir, logs) = (shared.paths.pod(pod.uid()), shared.paths.pod_logs(pod.object()));
    blocking::run(move || remove_tree(&pod_dir).and_then(|()| remove_tree(&logs))).await
}

/// Creates a directory with this mode, independent of the umask.
pub(crate) fn make_dir(dir: &Path, mode: u32) -> Result<(), PathError> {
    let make = || {
        fs::create_dir_all(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(mode))
    };
    make().map_err(|error| PathError::new("mkdir", dir, error))
}

/// Creates a log directory that is readable by non-root log agents.
pub(crate) fn make_log_dir(dir: &Path) -> Result<(), PathError> {
    files::create_dir_all_with_mode(dir, 0o755).map_err(|error| PathError::new("mkdir", dir, error))
}

/// Sets the group of a file or directory to the Pod's `fsGroup`.
fn set_group(path: &Path, group: Option<u32>) -> io::Result<()> {
    group.map_or(Ok(()), |gid| std::os::unix::fs::chown(path, None, Some(gid)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns the error of a PersistentVolume's type or mount options.
    #[track_caller]
    fn check(spec: Value, expected: &str) {
        let volume = serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap();
        let error = mountable_plugin("pv", VolumeSpec::PersistentVolume { volume: &volume, read_only: false }).err();
        assert_eq!(error.map(|e| e.to_string()).unwrap_or_default(), expected);
    }

    #[test]
    fn unsupported_volume_types_and_options_are_reported() {
        check(json!({"hostPath": {"path": "/d"}, "volumeMode": "Filesystem", "mountOptions": []}), "");
        check(json!({"local": {"path": "/d"}, "accessModes": ["ReadWriteOnce"]}), "");
        check(
            json!({"accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/"}, "claimRef": {}}),
            "MountVolume.SetUp failed for volume \"pv\" : volumes of type nfs are not supported yet",
        );
        check(
            json!({"capacity": {"storage": "1Gi"}}),
            "MountVolume.SetUp failed for volume \"pv\" : volumes of type unknown are not supported yet",
        );
        check(
            json!({"hostPath": {"path": "/d"}, "mountOptions": ["noatime"]}),
            "MountVolume.MountOptionSupport check failed for volume \"pv\" : Mount options are not supported for this volume type",
        );
    }
}
