//! Removes the sandboxes, shims and mounts of a data directory.

use super::{
    ContainerdError, ManagedContainerd, OciRuntime,
    config::Paths,
    shims::{children, parents, shims},
};
use crate::{CriRuntime, Runtime, RuntimeError, SandboxId};
use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Timeout for the exit of all shims, including shims that are still starting.
const SHIM_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time during which the removal of Pods is retried.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why sandboxes were not removed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum RemovalError {
    Containerd(#[from] ContainerdError),
    Runtime(#[from] RuntimeError),
}

/// Stops and removes every sandbox, stops containerd and remaining shims, and unmounts everything below the directory.
///
/// # Errors
/// If containerd cannot be started, or an unmount fails. Shims that containerd cannot remove are killed.
pub async fn destroy(data_dir: &Path, cni_conf_dir: &Path) -> Result<(), ContainerdError> {
    let paths = Paths::new(data_dir);
    if paths.config.exists() {
        // The default runtime does not matter: no containers are created.
        let (data_dir, cni_conf_dir) = (data_dir.to_path_buf(), cni_conf_dir.to_path_buf());
        let containerd = ManagedContainerd::start(data_dir, cni_conf_dir, OciRuntime::default()).await?;
        let removed = remove_sandboxes(&containerd).await;
        containerd.shutdown().await;
        if let Err(error) = removed {
            tracing::warn!(%error, "failed to remove all Pods, killing the remaining shims");
        }
        if let Some(dir) = paths.socket.parent().filter(|d| d.starts_with("/run")) {
            let _ = fs::remove_dir_all(dir);
        }
    }
    kill_shims(&paths).await;
    unmount_below(&paths.data_dir)
}

async fn remove_sandboxes(containerd: &ManagedContainerd) -> Result<(), RemovalError> {
    containerd.wait_ready(Duration::from_secs(30)).await?;
    Ok(remove_pods(&containerd.endpoint(), &containerd.paths.data_dir).await?)
}

/// Stops and removes every sandbox of a data directory, with all containers. Retries for a while: a stop fails while the
/// runtime still processes the kubelet's stop of the same sandbox, which removes its network and shim.
///
/// # Errors
/// If the runtime does not respond, or a sandbox cannot be removed.
pub async fn remove_pods(endpoint: &str, data_dir: &Path) -> Result<(), RuntimeError> {
    let runtime = CriRuntime::new(endpoint, data_dir)?;
    let deadline = tokio::time::Instant::now() + REMOVAL_TIMEOUT;
    loop {
        let removals = runtime.sandboxes().await?.into_iter().map(|s| remove_pod(&runtime, s.id));
        // All calls are awaited: a cancelled removal would make the next attempt fail.
        let failed = futures::future::join_all(removals).await.into_iter().find_map(Result::err);
        match failed {
            None => return Ok(()),
            Some(error) if tokio::time::Instant::now() > deadline => return Err(error),
            Some(error) => tracing::debug!(%error, "failed to remove a Pod, retrying"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn remove_pod(runtime: &CriRuntime, id: SandboxId) -> Result<(), RuntimeError> {
    runtime.stop_sandbox(&id).await?;
    runtime.remove_sandbox(&id).await
}

/// Kills shims and their descendants: the CRI does not list containers that were being started when Podium was killed.
/// Repeats until there are none, because a starting shim may appear late.
async fn kill_shims(paths: &Paths) {
    let deadline = tokio::time::Instant::now() + SHIM_EXIT_TIMEOUT;
    loop {
        let found = shims_and_children(paths);
        if found.is_empty() || tokio::time::Instant::now() > deadline {
            return;
        }
        for pid in found {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn shims_and_children(paths: &Paths) -> Vec<i32> {
    let mut found = shims(paths);
    let parents = parents();
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        found.extend(children(&parents, pid));
        at += 1;
    }
    found
}

/// Unmounts everything below a directory, but not the directory itself.
pub(super) fn unmount_below(dir: &Path) -> Result<(), ContainerdError> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|l| l.split(' ').nth(4))
        .map(|p| PathBuf::from(unescape(p)))
        .filter(|p| p.starts_with(dir) && p != dir)
        .collect();
    points.sort();
    for point in points.iter().rev() {
        umount2(point, MntFlags::MNT_DETACH).map_err(|e| ContainerdError::Destroy {
            path: dir.to_path_buf(),
            reason: format!("failed to unmount {}: {e}", point.display()),
        })?;
    }
    Ok(())
}

/// Decodes the octal escapes of proc(5) in a path.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}
