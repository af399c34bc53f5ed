//! Ends of processes.

use crate::{
    config::Exit,
    container::{ProcessExit, UnstoredExit},
    exit_file,
    keeper::Keeper,
    operation::Operation,
    protocol::{Event, Status},
};
use rustix::process::{WaitOptions, wait};
use std::{
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Maximum number of exits of unknown processes that are kept while the OCI runtime starts a process.
const MAX_EARLY_EXITS: usize = 4096;
/// Interval of attempts to store an exit.
const STORE_INTERVAL: Duration = Duration::from_secs(1);
/// Time until an exit is reported that could not be stored: a Pod must not hang without a reason.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of an error text in characters.
const MAX_ERROR: usize = 256;
/// Maximum size of a cgroup's file.
const MAX_CGROUP_FILE: u64 = 4096;

/// A process of `exec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecProcess {
    /// Container ID.
    pub(crate) container: String,
    /// ID of the process.
    pub(crate) id: String,
    /// Process ID in the sandbox of the OCI runtime, which delivers the signals.
    pub(crate) sandbox_pid: Option<i32>,
}

impl Keeper {
    /// Reaps all ended children. Orphans of containers are children, too, and are forgotten.
    pub(crate) fn reap(&mut self) {
        let mut exits = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            if let Some(code) = status.exit_status().or(signal) {
                exits.push((pid.as_raw_nonzero().get(), ProcessExit { code, finished_at: now() }));
            }
        }
        // The exit of a process that the runtime has just started is kept until the runtime's end is handled, so that
        // the reply precedes it.
        let (operations, others): (Vec<_>, Vec<_>) = exits
            .into_iter()
            .map(|(pid, exit)| (self.operations.iter().find(|(_, op)| op.pid == pid).map(|(s, _)| *s), pid, exit))
            .partition(|(operation, ..)| operation.is_some());
        for (_, pid, exit) in others {
            self.on_exit(pid, exit);
        }
        for (operation, _, exit) in operations {
            if let Some(operation) = operation {
                self.finish_operation(operation, exit.code);
            }
        }
    }

    fn on_exit(&mut self, pid: i32, exit: ProcessExit) {
        let container = self.containers.iter().find(|(_, container)| container.pid == Some(pid));
        if let Some(serial) = container.map(|(serial, _)| *serial) {
            self.on_container_exit(serial, exit);
        } else if let Some(exec) = self.execs.remove(&pid) {
            self.publish_exec_exit(exec, exit.code);
        } else if self.hello.pod_init == Some(pid) {
            // The kernel has killed everything in its namespace, in which nothing can start any more.
            self.hello.pod_init = None;
            self.is_stopping = true;
        } else if self.operations.values().any(Operation::starts_process) && self.early_exits.len() < MAX_EARLY_EXITS {
            self.early_exits.insert(pid, exit);
        }
    }

    pub(crate) fn publish_exec_exit(&mut self, exec: ExecProcess, exit_code: i32) {
        self.publish(Event::ExecExited { id: exec.container, exec_id: exec.id, exit_code });
    }

    /// Handles the end of a container's first process.
    pub(crate) fn on_container_exit(&mut self, serial: u32, exit: ProcessExit) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        container.pid = None;
        container.process_exit = Some(exit);
        // The reply to the start precedes the exit.
        if !container.is_starting {
            self.begin_exit(serial);
        }
    }

    /// Kills what the first process has left, which may still write.
    pub(crate) fn begin_exit(&mut self, serial: u32) {
        let shares = self.containers.get(&serial).is_some_and(|container| container.options.shares_pid_namespace);
        if !shares || !self.kill_remaining(serial) {
            self.complete_exit(serial);
        }
    }

    /// Completes the log of a container, stores its exit, and reports it.
    pub(crate) fn complete_exit(&mut self, serial: u32) {
        self.drain_output(serial);
        let Some(container) = self.containers.get_mut(&serial) else { return };
        let Some(process_exit) = container.process_exit else { return };
        let exit = Exit {
            exit_code: process_exit.code,
            finished_at: process_exit.finished_at,
            oom_killed: container.options.oom_events.as_deref().is_some_and(is_oom_killed),
            store_error: None,
        };
        let now = Instant::now();
        container.unstored = Some(UnstoredExit { exit, next_attempt: now, report_at: now + STORE_TIMEOUT });
        self.store_exit(serial, now);
    }

    /// Stores exits again that could not be stored.
    pub(crate) fn store_exits(&mut self, now: Instant) {
        let is_due = |exit: &UnstoredExit| exit.next_attempt <= now;
        let due = self.containers.iter().filter(|(_, container)| container.unstored.as_ref().is_some_and(is_due));
        for serial in due.map(|(serial, _)| *serial).collect::<Vec<u32>>() {
            self.store_exit(serial, now);
        }
    }

    /// Stores an exit and reports it. One that cannot be stored is reported late, with the reason, and is kept.
    fn store_exit(&mut self, serial: u32, now: Instant) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        let Some(unstored) = container.unstored.take() else { return };
        let UnstoredExit { mut exit, report_at, .. } = unstored;
        let is_stored = match exit_file::store(&container.dir, &exit) {
            Ok(()) => true,
            Err(error) => {
                crate::startup::log(&format!("failed to store the exit of {}: {error}", container.id));
                // Of a container whose directory is removed, nobody reads the exit later.
                let is_removed = !container.dir.exists();
                if !is_removed {
                    let next_attempt = now + STORE_INTERVAL;
                    container.unstored = Some(UnstoredExit { exit: exit.clone(), next_attempt, report_at });
                }
                exit.store_error = Some(error.to_string().chars().take(MAX_ERROR).collect());
                is_removed
            }
        };
        if container.exit.is_none() && (is_stored || now >= report_at) {
            self.report_exit(serial, exit);
        } else if is_stored {
            container.exit = Some(exit);
            if container.is_deleted {
                self.containers.remove(&serial);
            }
        }
    }

    fn report_exit(&mut self, serial: u32, exit: Exit) {
        let Some(container) = self.containers.get_mut(&serial) else { return };
        (container.status, container.exit) = (Status::Stopped, Some(exit.clone()));
        let (id, deletion) = (container.id.clone(), container.deletion.take());
        self.publish(Event::ContainerExited { id, exit });
        if let Some(reply) = deletion {
            self.remove_container(serial, reply);
        }
    }
}

/// Returns the time in nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns whether the kernel killed processes of a cgroup, by its `memory.events` (v2) or `memory.oom_control` (v1).
fn is_oom_killed(path: &Path) -> bool {
    let text = files::read_bounded(path, MAX_CGROUP_FILE).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oom_kills_are_counted_by_both_cgroup_versions() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("events");
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill ";
        let v2 = "low 0\nhigh 0\nmax 12\noom 1\noom_kill ";
        for (text, expected) in [(v1, true), (v2, true)] {
            std::fs::write(&file, format!("{text}0\n")).unwrap();
            assert!(!is_oom_killed(&file));
            std::fs::write(&file, format!("{text}2\noom_group_kill 0\n")).unwrap();
            assert_eq!(is_oom_killed(&file), expected);
        }
        assert!(!is_oom_killed(&dir.path().join("missing")));
    }
}
