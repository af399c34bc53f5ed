//! Volumes and directories of a Pod.

mod atomic_writer;
mod claim;
mod downward;
mod empty_dir;
mod host_path;
mod local;
mod nested;
mod ownership;
mod payload;
pub(crate) mod refresh;
mod removal;
mod tokens;

pub(crate) use claim::{is_bound, is_claim};
pub(crate) use downward::{field, resource_field};
pub(crate) use nested::make_nested_sub_paths;
pub use removal::remove_data;
pub(crate) use removal::unmount_below;
pub(crate) use tokens::Tokens;

use crate::{Shared, blocking, objects::Objects, os_error, pods::spec};
use api::{quantity::Amount, resources::Side};
use k8s_openapi::api::core::v1::Volume;
use lifecycle::Pod;
use ownership::Ownership;
use payload::Payload;
use removal::remove_tree;
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The directory or file of the node that a volume stands for.
///
/// # Errors
/// When the Pod has no such volume, or when it is a claim's and not there.
pub(crate) fn source(shared: &Shared, pod: &Pod, name: &str) -> Result<PathBuf, String> {
    let volume = spec(pod).volumes.iter().flatten().find(|v| v.name == name);
    let volume = volume.ok_or_else(|| format!("volume {name:?} does not exist"))?;
    if let Some(host) = &volume.host_path {
        return Ok(PathBuf::from(&host.path));
    }
    let dir = shared.paths.volume(pod.uid(), name);
    if is_claim(volume) {
        // Never the directory alone: what is written there would be lost, and nobody would know.
        return claim::place(&dir).ok_or_else(|| format!("volume {name:?} is not mounted"));
    }
    Ok(dir)
}

/// Whether a volume's files are the API's: then containers may not write to it, whatever they ask for.
fn is_projected(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

/// Whether what a volume holds is in memory only: an `emptyDir` that says so, and whatever may be secret.
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

/// What is to be done for one volume, now that everything it needs from the API is there.
enum Work {
    EmptyDir(empty_dir::EmptyDir),
    HostPath(host_path::HostPath),
    /// Files that the API knows, on the disk or in memory, and the mount points of other volumes among them.
    Files(Payload, empty_dir::EmptyDir, BTreeSet<PathBuf>),
    /// What a claim is bound to.
    Claimed(claim::Claimed),
    /// It is there already, or the runtime mounts it.
    Nothing,
}

fn failed(name: &str, error: &str) -> String {
    format!("MountVolume.SetUp failed for volume {name:?} : {error}")
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let group = spec(pod).security_context.as_ref().and_then(|s| s.fs_group);
    group.and_then(|g| u32::try_from(g).ok())
}

/// How much memory the Pod may have: its limit, or all that the node gives to Pods.
fn memory(shared: &Shared, pod: &Pod) -> Option<Amount> {
    let limits = api::resources::pod(spec(pod), Side::Limits);
    let every =
        api::pod::containers(spec(pod)).all(|(_, c)| api::resources::container(c, Side::Limits).contains_key("memory"));
    let own = limits.get("memory").copied().filter(|_| every || spec(pod).resources.is_some());
    own.or_else(|| shared.machine.allocatable.get("memory").copied())
}

/// Makes the Pod's directories and volumes. What is there already stays, and what fails keeps no other volume back.
///
/// # Errors
/// Each volume that failed, and why.
pub(crate) async fn set_up(shared: &Shared, pod: &Pod) -> Result<(), Vec<String>> {
    let mut objects = Objects::new(shared, pod.namespace());
    let (mut work, mut errors) = (Vec::new(), Vec::new());
    for volume in spec(pod).volumes.iter().flatten() {
        match prepare(shared, pod, volume, &mut objects).await {
            Ok(task) => work.push((volume.name.clone(), shared.paths.volume(pod.uid(), &volume.name), task)),
            Err(e) => errors.push(e),
        }
    }
    let (own, logs) = (shared.paths.pod(pod.uid()), shared.paths.pod_logs(pod.object()));
    let (ownership, pods) = (Ownership::of(pod), shared.paths.pods());
    let done = blocking::run(move || {
        make_dir(&own, 0o700)?;
        make_log_dir(&logs)?;
        let carried_out = work.into_iter().map(|(name, dir, task)| carry_out(task, &name, &dir, ownership, &pods));
        Ok(carried_out.filter_map(Result::err).collect::<Vec<_>>())
    });
    match done.await {
        Ok(more) => errors.extend(more),
        Err(error) => errors.push(error),
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn carry_out(task: Work, name: &str, dir: &Path, ownership: Option<Ownership>, pods: &Path) -> Result<(), String> {
    let group = ownership.map(Ownership::group);
    let done = match task {
        // It goes by the name of what the claim is bound to.
        Work::Claimed(task) => return task.set_up(dir, ownership, pods),
        Work::EmptyDir(task) => task.set_up(dir, group),
        Work::HostPath(task) => task.check(),
        Work::Nothing => Ok(()),
        Work::Files(payload, home, nested) => home
            .set_up(dir, group)
            .and_then(|()| nested::make(dir, &nested, group))
            .and_then(|()| atomic_writer::write(dir, &payload, group)),
    };
    done.map_err(|e| failed(name, &e))
}

async fn prepare(shared: &Shared, pod: &Pod, volume: &Volume, objects: &mut Objects<'_>) -> Result<Work, String> {
    if let Some(name) = api::claim::name_of(pod.name(), volume) {
        return Ok(claim::prepare(shared, pod, volume, &name).await?.map_or(Work::Nothing, Work::Claimed));
    }
    prepare_own(shared, pod, volume, objects).await.map_err(|e| failed(&volume.name, &e))
}

/// A volume that is told by the Pod alone.
async fn prepare_own(shared: &Shared, pod: &Pod, volume: &Volume, objects: &mut Objects<'_>) -> Result<Work, String> {
    if let Some(source) = &volume.empty_dir {
        return empty_dir::EmptyDir::new(source, memory(shared, pod)).map(Work::EmptyDir);
    }
    if let Some(source) = &volume.host_path {
        return Ok(Work::HostPath(host_path::HostPath::new(source)));
    }
    if volume.image.is_some() {
        return Ok(Work::Nothing);
    }
    match files(shared, pod, volume, objects).await? {
        Some(payload) => {
            let in_memory = || empty_dir::EmptyDir::in_memory(memory(shared, pod));
            let home = if is_in_memory(volume) { in_memory() } else { empty_dir::EmptyDir::on_disk() };
            Ok(Work::Files(payload, home, nested::directories(pod, &volume.name)))
        }
        None => Err(format!("volumes of type {} are not supported yet", kind(volume))),
    }
}

/// The files of a volume that shows what the API knows; `None` for another type.
async fn files(
    shared: &Shared,
    pod: &Pod,
    volume: &Volume,
    objects: &mut Objects<'_>,
) -> Result<Option<Payload>, String> {
    if let Some(source) = &volume.config_map {
        return payload::config_map(source, objects).await.map(Some);
    }
    if let Some(source) = &volume.secret {
        return payload::secret(source, objects).await.map(Some);
    }
    if let Some(source) = &volume.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        return payload::downward(shared, pod, items, source.default_mode).map(Some);
    }
    match &volume.projected {
        Some(source) => payload::projected(shared, pod, source, objects).await.map(Some),
        None => Ok(None),
    }
}

/// The name of a volume's type, as its spec has it.
fn kind(volume: &Volume) -> String {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(field, _)| field).find(|field| *field != "name").cloned().unwrap_or_else(|| "unknown".to_owned())
}

/// Unmounts and removes the Pod's volumes.
pub(crate) async fn tear_down(shared: &Shared, pod: &Pod) -> Result<(), String> {
    let (bound, volumes) = (shared.paths.sub_paths(pod.uid()), shared.paths.volumes(pod.uid()));
    blocking::run(move || remove_tree(&bound).and_then(|()| remove_tree(&volumes))).await
}

/// Removes what is left of a Pod that is gone: directories and logs.
pub(crate) async fn remove_pod_dirs(shared: &Shared, pod: &Pod) -> Result<(), String> {
    let (own, logs) = (shared.paths.pod(pod.uid()), shared.paths.pod_logs(pod.object()));
    blocking::run(move || remove_tree(&own).and_then(|()| remove_tree(&logs))).await
}

/// Makes a directory with this mode, whatever the umask.
pub(crate) fn make_dir(dir: &Path, mode: u32) -> Result<(), String> {
    let make = || {
        fs::create_dir_all(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(mode))
    };
    make().map_err(|e: io::Error| format!("mkdir {}: {}", dir.display(), os_error::words(&e)))
}

/// Makes a directory for logs, which agents that do not run as root may look for.
pub(crate) fn make_log_dir(dir: &Path) -> Result<(), String> {
    files::create_dir_all_with_mode(dir, 0o755).map_err(|e| format!("mkdir {}: {}", dir.display(), os_error::words(&e)))
}

/// Gives a file or directory to the Pod's `fsGroup`.
fn give_to_group(path: &Path, group: Option<u32>) -> io::Result<()> {
    group.map_or(Ok(()), |gid| std::os::unix::fs::chown(path, None, Some(gid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_of_an_unknown_type_is_named() {
        let volume = serde_json::json!({"name": "v", "nfs": {"server": "s", "path": "/"}});
        assert_eq!(kind(&serde_json::from_value(volume).unwrap()), "nfs");
    }
}
