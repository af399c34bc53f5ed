//! Ends the processes of keepers and containers without a keeper's help.

use crate::{
    cgroup::Cgroup,
    directories::subdirectories,
    oci_runtime,
    records::{self, ContainerRecord, SandboxRecord},
    sandbox_container,
    state::{Container, Sandbox, pods_dir},
    steps::blocking,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use std::{fs, io, os::unix::ffi::OsStrExt, path::Path, time::Duration};

/// Maximum time until a killed keeper has ended.
const KEEPER_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks whether it has ended, which takes a millisecond. The deletion of each Pod waits for it.
const KEEPER_EXIT_INTERVAL: Duration = Duration::from_millis(1);

const KILL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of a command line that are read: the state directory is one of the first arguments.
const MAX_COMMAND: u64 = 16 << 10;

/// `keeper.pid`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeeperPid {
    pid: i32,
    start_time: u64,
}

/// Kills the keeper of a sandbox, if it lives, and the runs of the OCI runtime that it left: one of them could create a
/// container later, which nobody would know. The caller ensures that this engine runs none for the sandbox meanwhile.
pub(crate) async fn kill_keeper(dir: &Path) {
    let Some(keeper) = read_keeper_pid(dir) else { return };
    kill_process(&keeper).await;
    let root = oci_runtime::state_dir(&dir.file_name().unwrap_or_default().to_string_lossy());
    let deadline = tokio::time::Instant::now() + KEEPER_EXIT_TIMEOUT;
    loop {
        let searched = root.clone();
        let runs = blocking(move || Ok(runs_with_root(searched.as_os_str().as_bytes()))).await.unwrap_or_default();
        if runs.is_empty() {
            return;
        }
        for pid in &runs {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        if tokio::time::Instant::now() > deadline {
            return tracing::error!(?runs, root = %root.display(), "failed to kill runs of the OCI runtime");
        }
        tokio::time::sleep(KILL_INTERVAL).await;
    }
}

/// Kills the keeper of a sandbox, if it lives. The session of the sandbox handles its end.
pub(crate) async fn kill_keeper_process(dir: &Path) {
    if let Some(keeper) = read_keeper_pid(dir) {
        kill_process(&keeper).await;
    }
}

async fn kill_process(keeper: &KeeperPid) {
    let deadline = tokio::time::Instant::now() + KEEPER_EXIT_TIMEOUT;
    while start_time(keeper.pid) == Some(keeper.start_time) && tokio::time::Instant::now() < deadline {
        let _ = kill(Pid::from_raw(keeper.pid), Signal::SIGKILL);
        tokio::time::sleep(KEEPER_EXIT_INTERVAL).await;
    }
}

/// Returns the processes of the OCI runtime with this state directory, those of this engine included.
fn runs_with_root(root: &[u8]) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_root = |pid: &i32| {
        let Ok(command) = files::read_bounded(Path::new(&format!("/proc/{pid}/cmdline")), MAX_COMMAND) else {
            return false;
        };
        let mut arguments = command.split(|byte| *byte == 0);
        arguments.any(|argument| argument == b"--root") && arguments.next() == Some(root)
    };
    pids.filter(has_root).collect()
}

fn read_keeper_pid(dir: &Path) -> Option<KeeperPid> {
    let text = files::read_bounded(&dir.join("keeper.pid"), 1 << 12).ok()?;
    let found: KeeperPid = serde_json::from_slice(&text).ok()?;
    (found.pid > 1).then_some(found)
}

/// Returns the start time of a process in clock ticks since boot; `None` if it has ended.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Kills the processes of all containers below a data directory, whose engine does not run.
pub(crate) async fn kill_containers(data_dir: &Path) -> io::Result<()> {
    for (_, dir) in subdirectories(&pods_dir(data_dir)).unwrap_or_default() {
        let record = records::load::<SandboxRecord>(&Sandbox::record_path(&dir)).ok().flatten();
        if let Some(cgroup) = record.and_then(|record| record.container_cgroup) {
            sandbox_container::kill(&cgroup).await?;
        }
        for (_, container) in subdirectories(&Sandbox::containers_dir(&dir)).unwrap_or_default() {
            let record = records::load::<ContainerRecord>(&Container::record_path(&container));
            let record = record.unwrap_or_else(|error| {
                tracing::warn!(%error, "a container's record cannot be read");
                None
            });
            if let Some(cgroup) = record.and_then(|record| Cgroup::find(&record.cgroup)) {
                cgroup.kill_all().await?;
            }
        }
    }
    Ok(())
}
