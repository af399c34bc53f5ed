//! Removing everything that ran below a data directory.

use super::{
    ContainerdError, OciRuntime, OwnContainerd,
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

/// How long shims may take to end, or to show up.
const SHIMS: Duration = Duration::from_secs(5);
/// How long the removal of a Pod is tried again.
const REMOVALS: Duration = Duration::from_secs(10);

/// Stops and removes every sandbox, ends containerd and leftover shims, and unmounts everything below the directory.
///
/// # Errors
/// When containerd cannot be started, or a mount stays. What containerd itself cannot remove goes by force.
pub async fn destroy(data_dir: &Path, cni_conf_dir: &Path) -> Result<(), ContainerdError> {
    let paths = Paths::new(data_dir);
    if paths.config.exists() {
        // With whichever default: nothing is made any more.
        let (data_dir, cni_conf_dir) = (data_dir.to_path_buf(), cni_conf_dir.to_path_buf());
        let containerd = OwnContainerd::start(data_dir, cni_conf_dir, OciRuntime::default()).await?;
        let removed = remove_sandboxes(&containerd).await;
        containerd.shutdown().await;
        if let Err(reason) = removed {
            tracing::warn!(reason, "containerd could not remove all Pods in order: what is left goes by force");
        }
        if let Some(dir) = paths.socket.parent().filter(|d| d.starts_with("/run")) {
            let _ = fs::remove_dir_all(dir);
        }
    }
    end_shims(&paths).await;
    unmount_below(&paths.data_dir)
}

async fn remove_sandboxes(containerd: &OwnContainerd) -> Result<(), String> {
    containerd.wait_ready(Duration::from_secs(30)).await.map_err(|e| e.to_string())?;
    remove_pods(&containerd.endpoint(), &containerd.paths.data_dir).await.map_err(|e| e.to_string())
}

/// Stops and removes every sandbox of a data directory, with all containers. Tries again for a while: a runtime that is
/// still at the stop which the kubelet asked for fails the second one, because their networks and shims go at once.
///
/// # Errors
/// When the runtime does not answer, or one cannot be removed.
pub async fn remove_pods(endpoint: &str, data_dir: &Path) -> Result<(), RuntimeError> {
    let runtime = CriRuntime::new(endpoint, data_dir)?;
    let deadline = tokio::time::Instant::now() + REMOVALS;
    loop {
        let removals = runtime.sandboxes().await?.into_iter().map(|s| remove_pod(&runtime, s.id));
        // All of them to their end: one that is given up halfway is what makes the next attempt fail.
        let failed = futures::future::join_all(removals).await.into_iter().find_map(Result::err);
        match failed {
            None => return Ok(()),
            Some(error) if tokio::time::Instant::now() > deadline => return Err(error),
            Some(error) => tracing::debug!(%error, "a Pod could not be removed yet"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn remove_pod(runtime: &CriRuntime, id: SandboxId) -> Result<(), RuntimeError> {
    runtime.stop_sandbox(&id).await?;
    runtime.remove_sandbox(&id).await
}

/// Ends shims and all that they started: what was being started when Podium was killed is in no list. Looks again until
/// there is none, for one that is starting shows up late.
async fn end_shims(paths: &Paths) {
    let deadline = tokio::time::Instant::now() + SHIMS;
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

/// Unmounts what is mounted below a directory; one that is a mount itself is its owner's.
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
            reason: format!("cannot unmount {}: {e}", point.display()),
        })?;
    }
    Ok(())
}

/// proc(5) writes blanks in paths as octal numbers.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}
