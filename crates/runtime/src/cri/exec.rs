//! Exec with timeout: kills the command and its descendants.
//!
//! The runtime kills only the command. Its descendants would run until the container exits, and an exec probe would leak
//! more processes in every period.

use super::processes::Processes;
use crate::{
    RuntimeError,
    process::{Process, add_descendants},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, timeout};

/// Time before the timeout at which the processes are listed: after the kill, the parents of orphans are not known.
const SNAPSHOT_MARGIN: Duration = Duration::from_millis(50);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a command that the runtime kills after `limit`, and then kills its descendants.
pub(super) async fn kill_descendants_on_timeout<T>(
    container: &str,
    limit: Duration,
    command: impl Future<Output = Result<T, RuntimeError>>,
) -> Result<T, RuntimeError> {
    let began = Instant::now();
    tokio::pin!(command);
    if let Ok(done) = timeout(limit.saturating_sub(SNAPSHOT_MARGIN), &mut command).await {
        return done;
    }
    let mut processes = Processes::of(container);
    let before = processes.list().await;
    let done = loop {
        match timeout(POLL_INTERVAL, &mut command).await {
            Ok(done) => break done,
            // The runtime waits until all processes close the command's output.
            Err(_) if began.elapsed() >= limit => kill_orphans(&mut processes, &before).await,
            Err(_) => {}
        }
    };
    if matches!(done, Err(RuntimeError::Deadline(_))) {
        kill_orphans(&mut processes, &before).await;
    }
    done
}

async fn kill_orphans(processes: &mut Processes, before: &[Process]) {
    for pid in orphans(before, &processes.list().await) {
        // The process may have exited meanwhile.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Returns the PIDs of orphans: processes in the sessions of exited commands, and their descendants.
fn orphans(before: &[Process], after: &[Process]) -> Vec<i32> {
    let is_running = |p: &&Process| after.iter().any(|q| q.pid == p.pid && q.began == p.began);
    let exited: Vec<&Process> = commands(before).filter(|p| !is_running(p)).collect();
    let mut descendants: BTreeSet<i32> = exited.iter().flat_map(|p| [p.pid, p.session]).collect();
    add_descendants(&mut descendants, &[before, after].concat());
    // The PID of an exited process may have been reused.
    let orphans = after.iter().map(|p| p.pid).filter(|pid| descendants.contains(pid));
    orphans.filter(|pid| !exited.iter().any(|p| p.pid == *pid)).collect()
}

/// Returns the exec commands of a container. Like the container's main process, the oldest one, they have a parent outside
/// of the container: the shim. They are session leaders (`runc`), or their session leader has exited (`crun`).
fn commands(all: &[Process]) -> impl Iterator<Item = &Process> {
    let main = all.iter().min_by_key(|p| (p.began, p.pid));
    let is_exec_process = move |p: &&Process| main.is_some_and(|main| p.parent == main.parent && p.pid != main.pid);
    let has_leader = |p: &Process| all.iter().any(|q| q.pid == p.session);
    all.iter().filter(is_exec_process).filter(move |p| p.session == p.pid || !has_leader(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Main process of the container, and its child.
    const MAIN_PROCESSES: [Process; 2] = [process(10, 1, 10), process(11, 10, 10)];

    const fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process { pid, parent, session, began: 7 }
    }

    #[test]
    fn only_descendants_of_an_exited_command_are_orphans() {
        // A command with a child, a grandchild in another session and an orphaned descendant; and a second command.
        let command = process(20, 1, 20);
        let started = [process(23, 22, 23), process(22, 20, 20), process(24, 10, 20)];
        let other = [process(30, 1, 30), process(31, 30, 30)];
        let before = [&MAIN_PROCESSES[..], &[command], &started, &other].concat();
        assert_eq!(orphans(&before, &before), [0; 0]);
        // Orphans are reparented, and may have started new processes.
        let after = [
            &MAIN_PROCESSES[..],
            &[process(22, 10, 20), process(23, 22, 23), process(24, 10, 20), process(25, 23, 23)],
            &other,
        ];
        assert_eq!(orphans(&before, &after.concat()), [22, 23, 24, 25]);
        let again = Process { began: 9, ..command };
        assert_eq!(orphans(&before, &[&MAIN_PROCESSES[..], &[again]].concat()), [0; 0]);
    }

    #[test]
    fn command_without_session_leader_has_orphans() {
        let command = process(20, 1, 19);
        let started = [process(21, 20, 19), process(22, 10, 19), process(23, 20, 23)];
        let other = [process(30, 1, 29), process(31, 30, 29)];
        let before = [&MAIN_PROCESSES[..], &[command], &started, &other].concat();
        let after = [&MAIN_PROCESSES[..], &[process(21, 10, 19), process(22, 10, 19), process(23, 10, 23)], &other];
        assert_eq!(orphans(&before, &after.concat()), [21, 22, 23]);
    }

    #[test]
    fn reparented_process_is_not_a_command() {
        // With a shared PID namespace the pause process, which is not in the container, adopts orphans.
        let daemon = process(20, 5, 19);
        let before = [&MAIN_PROCESSES[..], &[daemon, process(21, 20, 19)]].concat();
        assert_eq!(orphans(&before, &[&MAIN_PROCESSES[..], &[process(21, 5, 19)]].concat()), [0; 0]);
    }
}
