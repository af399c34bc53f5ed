//! Ends the processes of keepers and containers without a keeper's help.

use crate::{
    cgroup::Cgroup,
    directories::subdirectories,
    records::{self, ContainerRecord},
    state::{Container, Sandbox, pods_dir},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use std::{fs, io, path::Path, time::Duration};

/// Maximum time until a killed keeper has ended.
const KEEPER_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks whether it has ended, which takes a millisecond. The deletion of each Pod waits for it.
const KEEPER_EXIT_INTERVAL: Duration = Duration::from_millis(1);

/// `keeper.pid`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeeperPid {
    pid: i32,
    start_time: u64,
}

/// Kills the keeper of a sandbox, if it lives.
pub(crate) async fn kill_keeper(dir: &Path) {
    let Some(keeper) = read_keeper_pid(dir) else { return };
    let deadline = tokio::time::Instant::now() + KEEPER_EXIT_TIMEOUT;
    while start_time(keeper.pid) == Some(keeper.start_time) && tokio::time::Instant::now() < deadline {
        let _ = kill(Pid::from_raw(keeper.pid), Signal::SIGKILL);
        tokio::time::sleep(KEEPER_EXIT_INTERVAL).await;
    }
}

fn read_keeper_pid(dir: &Path) -> Option<KeeperPid> {
    let text = crate::pod_files::read_bounded(&dir.join("keeper.pid"), 1 << 12).ok()?;
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
        for (_, container) in subdirectories(&Sandbox::containers_dir(&dir)).unwrap_or_default() {
            let record: Option<ContainerRecord> = records::load(&Container::record_path(&container))?;
            if let Some(cgroup) = record.and_then(|record| Cgroup::find(&record.cgroup)) {
                cgroup.kill_all().await?;
            }
        }
    }
    Ok(())
}
