//! Kills the processes of a container through its cgroup, on cgroup v1, v2 and hybrid hierarchies.

use nix::{
    sys::{
        signal::{Signal, kill},
        statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs},
    },
    unistd::Pid,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;

/// Mount point of the cgroup file systems.
const ROOT: &str = "/sys/fs/cgroup";
/// Maximum time until killed processes have ended.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// cgroup of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Finds the cgroup by its path in a hierarchy. On v1 that of `pids`, because every runtime uses it for processes.
    pub(crate) fn find(path: &str) -> Option<Self> {
        let below = path.trim_start_matches('/');
        // The root of a hierarchy has all processes of the machine.
        if below.is_empty() || below.split('/').any(|part| part == "..") {
            return None;
        }
        let candidates =
            ["", "unified", "pids", "memory", "systemd"].map(|root| Path::new(ROOT).join(root).join(below));
        candidates.into_iter().find(|dir| is_cgroup(dir)).map(Self)
    }

    /// Kills all processes, and waits until they have ended. Repeats, because a process may fork meanwhile.
    ///
    /// # Errors
    /// When processes remain after 10 s, for example in an uninterruptible wait.
    pub(crate) async fn kill_all(&self) -> io::Result<()> {
        let deadline = Instant::now() + KILL_TIMEOUT;
        loop {
            // cgroup.kill (Linux 5.14) kills atomically; it does not exist on v1.
            let _ = fs::write(self.0.join("cgroup.kill"), "1");
            let processes = self.processes();
            if processes.is_empty() {
                return Ok(());
            }
            for pid in &processes {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            if Instant::now() > deadline {
                let message = format!("{} processes of {} did not end", processes.len(), self.0.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the process IDs of the cgroup and of those below it. A cgroup that vanished has none.
    pub(crate) fn processes(&self) -> Vec<i32> {
        runtime::pids_below(&self.0).unwrap_or_default()
    }
}

/// Returns whether a directory is a cgroup. Where a hierarchy is not mounted, an OCI runtime may have made plain directories,
/// with process IDs in plain files.
fn is_cgroup(dir: &Path) -> bool {
    let kind = statfs(dir).map(|found| found.filesystem_type());
    kind.is_ok_and(|kind| kind == CGROUP_SUPER_MAGIC || kind == CGROUP2_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_hierarchy_is_no_cgroup_of_a_container() {
        for path in ["", "/", "//", "..", "/a/../.."] {
            assert_eq!(Cgroup::find(path), None, "{path}");
        }
    }
}
