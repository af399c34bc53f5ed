//! Removal of orphaned shims, whose tasks containerd no longer knows.
//!
//! On a loaded node the deletion of a task may exceed containerd's timeout (10 s in 1.6 and 1.7). containerd then logs
//! `failed to handle sandbox TaskExit event` and forgets the task, and the idle shim and its files are leaked. If the client
//! dies while containerd creates a task, containerd may remove the bundle, and leak only the shim.

use super::{
    config::Paths,
    destroy::unmount_below,
    shims::{children, is_shim, parents, shims},
};
use crate::CriRuntime;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Interval of the checks for orphaned shims.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum age of an orphaned shim: longer than any call that creates a task, because containerd does not list new tasks
/// before the call returns.
const MIN_AGE: Duration = Duration::from_secs(300);

/// Kills shims without processes whose task is unknown to containerd, and removes their files.
pub(super) async fn kill_orphaned_shims(paths: &Paths) {
    let idle: Vec<i32> = {
        let parents = parents();
        shims(paths).into_iter().filter(|pid| children(&parents, *pid).next().is_none()).collect()
    };
    for pid in idle {
        let Ok(bundle) = fs::read_link(format!("/proc/{pid}/cwd")) else { continue };
        if is_bundle_removed(pid) || is_old(&bundle) && is_task_unknown(paths, &bundle).await {
            kill_shim(paths, pid, &bundle);
        }
    }
}

/// Whether a bundle, the working directory of a shim, is old enough. Its `config.json` is written once.
fn is_old(bundle: &Path) -> bool {
    let created = fs::metadata(bundle.join("config.json")).and_then(|config| config.modified());
    created.is_ok_and(|created| created.elapsed().is_ok_and(|age| age >= MIN_AGE))
}

/// Whether the bundle of a shim is removed. Such a shim is useless.
fn is_bundle_removed(pid: i32) -> bool {
    fs::metadata(format!("/proc/{pid}/cwd")).is_ok_and(|bundle| bundle.nlink() == 0)
}

async fn is_task_unknown(paths: &Paths, bundle: &Path) -> bool {
    let Some(id) = bundle.file_name().and_then(|name| name.to_str()) else { return false };
    let Ok(runtime) = CriRuntime::new(&paths.endpoint(), &paths.data_dir) else { return false };
    matches!(runtime.has_task(id).await, Ok(false))
}

fn kill_shim(paths: &Paths, pid: i32, bundle: &Path) {
    let opened = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Checked after the pidfd is open: before that, the PID may have been reused.
    let Some(shim) = opened.filter(|_| is_shim(paths, pid)) else { return };
    tracing::warn!(pid, bundle = %bundle.display(), "killing an orphaned shim whose task is unknown to containerd");
    // The shim may have exited meanwhile.
    let _ = pidfd_send_signal(shim, Signal::KILL);
    if let Some(socket) = socket(bundle) {
        let _ = fs::remove_file(socket);
    }
    // Mounted file systems must not be deleted with the bundle.
    if bundle.starts_with(&paths.state) && unmount_below(bundle).is_ok() {
        let _ = fs::remove_dir_all(bundle);
    }
}

/// Returns the path of the shim's socket.
fn socket(bundle: &Path) -> Option<PathBuf> {
    let address = fs::read_to_string(bundle.join("address")).ok()?;
    address.trim().strip_prefix("unix://").map(PathBuf::from)
}
