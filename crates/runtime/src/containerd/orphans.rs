//! Shims that their containerd has forgotten.
//!
//! On a node under load a task may take longer to be deleted than containerd waits (10 s in 1.6 and 1.7). It then forgets
//! the task and says so in its log (`failed to handle sandbox TaskExit event`), and the shim stays for ever, with nothing to
//! do and its files. When its client dies while it makes a task, containerd may even remove the files, and the shim stays.

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

/// How often is looked for orphans.
pub(super) const ROUND: Duration = Duration::from_secs(60);
/// What is being made is no orphan, though containerd does not know it yet: longer than any call that makes something.
const MADE_WITHIN: Duration = Duration::from_secs(300);

/// Ends shims that have no process and of whose task containerd knows nothing, and removes their files.
pub(super) async fn end_orphans(paths: &Paths) {
    let idle: Vec<i32> = {
        let parents = parents();
        shims(paths).into_iter().filter(|pid| children(&parents, *pid).next().is_none()).collect()
    };
    for pid in idle {
        let Ok(bundle) = fs::read_link(format!("/proc/{pid}/cwd")) else { continue };
        if is_gone(pid) || is_old(&bundle) && is_forgotten(paths, &bundle).await {
            end(paths, pid, &bundle);
        }
    }
}

/// A shim's working directory is the bundle of its task, which is written once.
fn is_old(bundle: &Path) -> bool {
    let made = fs::metadata(bundle.join("config.json")).and_then(|config| config.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age >= MADE_WITHIN))
}

/// Without its bundle a shim can do nothing any more.
fn is_gone(pid: i32) -> bool {
    fs::metadata(format!("/proc/{pid}/cwd")).is_ok_and(|bundle| bundle.nlink() == 0)
}

async fn is_forgotten(paths: &Paths, bundle: &Path) -> bool {
    let Some(id) = bundle.file_name().and_then(|name| name.to_str()) else { return false };
    let Ok(runtime) = CriRuntime::new(&paths.endpoint(), &paths.data_dir) else { return false };
    matches!(runtime.has_task(id).await, Ok(false))
}

fn end(paths: &Paths, pid: i32, bundle: &Path) {
    let opened = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Looked at once the descriptor holds the process: the number may have become another's.
    let Some(shim) = opened.filter(|_| is_shim(paths, pid)) else { return };
    tracing::warn!(pid, bundle = %bundle.display(), "containerd has forgotten this shim, which has nothing to do: it goes");
    // It may just have ended by itself.
    let _ = pidfd_send_signal(shim, Signal::KILL);
    if let Some(socket) = socket(bundle) {
        let _ = fs::remove_file(socket);
    }
    // What is mounted is not the bundle's to be removed.
    if bundle.starts_with(&paths.state) && unmount_below(bundle).is_ok() {
        let _ = fs::remove_dir_all(bundle);
    }
}

/// Where the shim hears.
fn socket(bundle: &Path) -> Option<PathBuf> {
    let address = fs::read_to_string(bundle.join("address")).ok()?;
    address.trim().strip_prefix("unix://").map(PathBuf::from)
}
