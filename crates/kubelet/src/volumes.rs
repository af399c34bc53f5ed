//! Volumes and directories of Pods.

mod atomic_writer;
mod claim;
mod downward_api;
mod mount_error;
mod nested;
mod ownership;
mod payload;
mod plugins;
pub(crate) mod refresh;
mod removal;
mod tokens;

pub(crate) use claim::{is_bind_mounted, is_claim};
pub(crate) use downward_api::{DownwardApiError, field_ref_value, resource_field_ref_value};
pub(crate) use mount_error::MountErrors;
pub(crate) use nested::{NestedMountPointError, create_nested_sub_paths};
pub use removal::remove_data;
pub(crate) use removal::{RemovalError, unmount_below};
pub(crate) use tokens::TokenCache;

use crate::{Shared, blocking, object_cache::ObjectCache, os_error::PathError, pods::spec};
use api::{quantity::Amount, resources::ResourceField};
use k8s_openapi::api::core::v1::Volume;
use lifecycle::Pod;
use mount_error::{MountError, SetUpError};
use ownership::VolumeOwnership;
use payload::{Payload, PayloadError};
use plugins::{empty_dir, host_path};
use removal::remove_tree;
use std::{
    collections::BTreeSet,
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
    if let Some(host) = &volume.host_path {
        return Ok(PathBuf::from(&host.path));
    }
    let dir = shared.paths.volume(pod.uid(), name);
    if is_claim(volume) {
        // The plain directory must not be used: its data would be lost with the Pod.
        return claim::mounted_path(&dir).ok_or_else(|| VolumePathError::NotMounted(name.to_owned()));
    }
    Ok(dir)
}

/// Returns whether the volume's files come from the API, which makes it read-only.
fn is_projected(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

/// Returns whether a volume is in memory: an `emptyDir` with such a medium, and volumes that may contain secrets.
pub(crate) fn is_in_memory(volume: &Volume) -> bool {
    let medium = volume.empty_dir.as_ref().and_then(|source| source.medium.as_deref());
    medium.is_some_and(|medium| !medium.is_empty()) || is_projected(volume) && volume.config_map.is_none()
}

pub(crate) fn is_readonly(pod: &Pod, name: &str) -> bool {
    let is_readonly = |volume: &Volume| {
        let claim = volume.persistent_volume_claim.as_ref();
        is_projected(volume) || claim.is_some_and(|source| source.read_only == Some(true))
    };
    spec(pod).volumes.iter().flatten().any(|v| v.name == name && is_readonly(v))
}

/// Mount task of one volume, with everything that it needs from the API.
enum MountTask {
    EmptyDir(empty_dir::EmptyDir),
    HostPath(host_path::HostPath),
    /// Files from the API, in a directory or tmpfs, with mount points for nested volumes.
    Files(Payload, empty_dir::EmptyDir, BTreeSet<PathBuf>),
    /// Volume of a claim.
    ClaimVolume(claim::ClaimVolume),
    /// Already mounted, or mounted by the runtime.
    Nothing,
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
    let mut objects = ObjectCache::new(shared, pod.namespace());
    let (mut tasks, mut errors) = (Vec::new(), Vec::new());
    for volume in spec(pod).volumes.iter().flatten() {
        match prepare(shared, pod, volume, &mut objects).await {
            Ok(task) => tasks.push((volume.name.clone(), shared.paths.volume(pod.uid(), &volume.name), task)),
            Err(e) => errors.push(e),
        }
    }
    let (pod_dir, logs) = (shared.paths.pod(pod.uid()), shared.paths.pod_logs(pod.object()));
    let (ownership, pods) = (VolumeOwnership::new(pod), shared.paths.pods());
    let result = blocking::run(move || {
        make_dir(&pod_dir, 0o700)?;
        make_log_dir(&logs)?;
        let results = tasks.into_iter().map(|(name, dir, task)| run_task(task, &name, &dir, ownership, &pods));
        Ok::<_, MountError>(results.filter_map(Result::err).collect::<Vec<_>>())
    });
    match result.await {
        Ok(found) => errors.extend(found),
        Err(error) => errors.push(error),
    }
    MountErrors::check(errors)
}

fn run_task(
    task: MountTask,
    name: &str,
    dir: &Path,
    ownership: Option<VolumeOwnership>,
    pods: &Path,
) -> Result<(), MountError> {
    let group = ownership.map(VolumeOwnership::group);
    let result = match task {
        // Its errors name the PersistentVolume.
        MountTask::ClaimVolume(task) => return task.set_up(dir, ownership, pods),
        MountTask::EmptyDir(task) => task.set_up(dir, group).map_err(SetUpError::from),
        MountTask::HostPath(task) => task.check().map_err(SetUpError::from),
        MountTask::Nothing => Ok(()),
        MountTask::Files(payload, home, nested) => set_up_files(dir, &payload, &home, &nested, group),
    };
    result.map_err(|error| MountError::set_up(name, error))
}

fn set_up_files(
    dir: &Path,
    payload: &Payload,
    home: &empty_dir::EmptyDir,
    nested: &BTreeSet<PathBuf>,
    group: Option<u32>,
) -> Result<(), SetUpError> {
    home.set_up(dir, group)?;
    nested::create_mount_points(dir, nested, group)?;
    Ok(atomic_writer::write(dir, payload, group)?)
}

async fn prepare(
    shared: &Shared,
    pod: &Pod,
    volume: &Volume,
    objects: &mut ObjectCache<'_>,
) -> Result<MountTask, MountError> {
    if let Some(name) = api::persistent_volume_claim::claim_name(pod.name(), volume) {
        return Ok(claim::prepare(shared, pod, volume, &name)
            .await?
            .map_or(MountTask::Nothing, MountTask::ClaimVolume));
    }
    prepare_without_claim(shared, pod, volume, objects).await.map_err(|error| MountError::set_up(&volume.name, error))
}

/// Prepares a volume without a claim.
async fn prepare_without_claim(
    shared: &Shared,
    pod: &Pod,
    volume: &Volume,
    objects: &mut ObjectCache<'_>,
) -> Result<MountTask, SetUpError> {
    if let Some(source) = &volume.empty_dir {
        return Ok(MountTask::EmptyDir(empty_dir::EmptyDir::new(source, memory_limit(shared, pod))?));
    }
    if let Some(source) = &volume.host_path {
        return Ok(MountTask::HostPath(host_path::HostPath::new(source)));
    }
    if volume.image.is_some() {
        return Ok(MountTask::Nothing);
    }
    match volume_files(shared, pod, volume, objects).await? {
        Some(payload) => {
            let in_memory = || empty_dir::EmptyDir::in_memory(memory_limit(shared, pod));
            let home = if is_in_memory(volume) { in_memory() } else { empty_dir::EmptyDir::on_disk() };
            Ok(MountTask::Files(payload, home, nested::nested_mount_points(pod, &volume.name)))
        }
        None => Err(SetUpError::UnsupportedType(volume_type(volume))),
    }
}

/// Returns the files of a volume whose content comes from the API; `None` for other types.
async fn volume_files(
    shared: &Shared,
    pod: &Pod,
    volume: &Volume,
    objects: &mut ObjectCache<'_>,
) -> Result<Option<Payload>, PayloadError> {
    if let Some(source) = &volume.config_map {
        return payload::config_map(source, objects).await.map(Some);
    }
    if let Some(source) = &volume.secret {
        return payload::secret(source, objects).await.map(Some);
    }
    if let Some(source) = &volume.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        return payload::downward_api(shared, pod, items, source.default_mode).map(Some);
    }
    match &volume.projected {
        Some(source) => payload::projected(shared, pod, source, objects).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the name of a volume's type, as in its spec.
fn volume_type(volume: &Volume) -> String {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(field, _)| field).find(|field| *field != "name").cloned().unwrap_or_else(|| "unknown".to_owned())
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

    #[test]
    fn unsupported_volume_type_is_named() {
        let volume = serde_json::json!({"name": "v", "nfs": {"server": "s", "path": "/"}});
        assert_eq!(volume_type(&serde_json::from_value(volume).unwrap()), "nfs");
    }
}
