//! Removing everything that ran below a data directory.

use super::{ContainerdError, OwnContainerd, config::Paths};
use crate::{CriRuntime, Runtime, RuntimeError};
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

/// Stops and removes every sandbox, ends containerd and leftover shims, and unmounts everything below the directory.
///
/// # Errors
/// When containerd cannot be started to do it, or a mount stays.
pub async fn destroy(data_dir: &Path, cni_conf_dir: &Path) -> Result<(), ContainerdError> {
    let paths = Paths::new(data_dir);
    if paths.config.exists() {
        let containerd = OwnContainerd::start(data_dir.to_path_buf(), cni_conf_dir.to_path_buf()).await?;
        let removed = remove_sandboxes(&containerd).await;
        containerd.shutdown().await;
        removed.map_err(|reason| ContainerdError::Destroy { path: data_dir.to_path_buf(), reason })?;
        end_shims(&paths);
        if let Some(dir) = paths.socket.parent().filter(|d| d.starts_with("/run")) {
            let _ = fs::remove_dir_all(dir);
        }
    }
    unmount_below(&paths.data_dir)
}

async fn remove_sandboxes(containerd: &OwnContainerd) -> Result<(), String> {
    containerd.wait_ready(Duration::from_secs(30)).await.map_err(|e| e.to_string())?;
    remove_pods(&containerd.endpoint(), &containerd.paths.data_dir).await.map_err(|e| e.to_string())
}

/// Stops and removes every sandbox of a data directory, with all containers.
///
/// # Errors
/// When the runtime does not answer, or one cannot be removed.
pub async fn remove_pods(endpoint: &str, data_dir: &Path) -> Result<(), RuntimeError> {
    let runtime = CriRuntime::new(endpoint, data_dir)?;
    let sandboxes = runtime.sandboxes().await?;
    let removals = sandboxes.iter().map(|s| async {
        runtime.stop_sandbox(&s.id).await?;
        runtime.remove_sandbox(&s.id).await
    });
    futures::future::try_join_all(removals).await.map(drop)
}

/// Shims name the socket of their containerd on their command line.
fn end_shims(paths: &Paths) {
    let socket = paths.socket.as_os_str().as_encoded_bytes();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let cmdline = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut args = cmdline.split(|b| *b == 0);
        let shim = args.next().is_some_and(|program| program.windows(15).any(|w| w == b"containerd-shim"));
        if shim && args.any(|arg| arg == socket) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn unmount_below(dir: &Path) -> Result<(), ContainerdError> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|l| l.split(' ').nth(4))
        .map(|p| PathBuf::from(unescape(p)))
        .filter(|p| p.starts_with(dir))
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
