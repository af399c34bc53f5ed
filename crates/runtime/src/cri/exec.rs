//! A command in a container that takes too long ends with all that it has started.
//!
//! The runtime kills the command alone. What it leaves behind would run on for as long as its container does, and with a
//! probe there would be more of it every period.

use super::processes::{Process, Processes};
use crate::RuntimeError;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// So long before the time is up it is seen what there is: afterwards nobody can tell whose it was.
const LEAD: Duration = Duration::from_millis(50);
const ROUND: Duration = Duration::from_millis(100);

/// Waits for a command that the runtime kills when `limit` is over, and then ends what it has started.
pub(super) async fn whole<T>(
    container: &str,
    limit: Duration,
    command: impl Future<Output = Result<T, RuntimeError>>,
) -> Result<T, RuntimeError> {
    let began = Instant::now();
    tokio::pin!(command);
    if let Ok(done) = timeout(limit.saturating_sub(LEAD), &mut command).await {
        return done;
    }
    let mut processes = Processes::of(container);
    let before = processes.list().await;
    let done = loop {
        match timeout(ROUND, &mut command).await {
            Ok(done) => break done,
            // The runtime waits for all that holds the command's output.
            Err(_) if began.elapsed() >= limit => end_orphans(&mut processes, &before).await,
            Err(_) => {}
        }
    };
    if matches!(done, Err(RuntimeError::Deadline(_))) {
        end_orphans(&mut processes, &before).await;
    }
    done
}

async fn end_orphans(processes: &mut Processes, before: &[Process]) {
    for pid in orphans(before, &processes.list().await) {
        // One that has ended meanwhile needs no end.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// What is left of commands that are gone: their sessions, and what came of those.
fn orphans(before: &[Process], after: &[Process]) -> Vec<i32> {
    let there = |p: &&Process| after.iter().any(|q| q.pid == p.pid && q.began == p.began);
    let gone: Vec<&Process> = commands(before).filter(|p| !there(p)).collect();
    let mut family: Vec<i32> = gone.iter().flat_map(|p| [p.pid, p.session]).collect();
    // Parents come before their children in time, but not in the list.
    loop {
        let known = family.len();
        for p in before.iter().chain(after) {
            if !family.contains(&p.pid) && (family.contains(&p.session) || family.contains(&p.parent)) {
                family.push(p.pid);
            }
        }
        if family.len() == known {
            break;
        }
    }
    // Whoever has the number of one that is gone is somebody else.
    let left = after.iter().map(|p| p.pid).filter(|pid| family.contains(pid));
    left.filter(|pid| !gone.iter().any(|p| p.pid == *pid)).collect()
}

/// Commands that were brought into the container: as its own process, the oldest, they have their parent outside, which
/// is the shim. They lead a session (`runc`), or who led it was gone before they began (`crun`).
fn commands(all: &[Process]) -> impl Iterator<Item = &Process> {
    let own = all.iter().min_by_key(|p| (p.began, p.pid));
    let brought = move |p: &&Process| own.is_some_and(|own| p.parent == own.parent && p.pid != own.pid);
    let has_leader = |p: &Process| all.iter().any(|q| q.pid == p.session);
    all.iter().filter(brought).filter(move |p| p.session == p.pid || !has_leader(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The container's own process and its child.
    const OWN: [Process; 2] = [process(10, 1, 10), process(11, 10, 10)];

    const fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process { pid, parent, session, began: 7 }
    }

    #[test]
    fn only_what_a_command_that_is_gone_has_started_is_an_orphan() {
        // A command with a child, a grandchild in a session of its own and one whose parent has gone, and another command.
        let command = process(20, 1, 20);
        let started = [process(23, 22, 23), process(22, 20, 20), process(24, 10, 20)];
        let other = [process(30, 1, 30), process(31, 30, 30)];
        let before = [&OWN[..], &[command], &started, &other].concat();
        assert_eq!(orphans(&before, &before), [0; 0]);
        // What it has left behind has another parent now, and may have begun more.
        let after =
            [&OWN[..], &[process(22, 10, 20), process(23, 22, 23), process(24, 10, 20), process(25, 23, 23)], &other];
        assert_eq!(orphans(&before, &after.concat()), [22, 23, 24, 25]);
        let again = Process { began: 9, ..command };
        assert_eq!(orphans(&before, &[&OWN[..], &[again]].concat()), [0; 0]);
    }

    #[test]
    fn a_command_whose_session_has_lost_its_leader_has_orphans_too() {
        let command = process(20, 1, 19);
        let started = [process(21, 20, 19), process(22, 10, 19), process(23, 20, 23)];
        let other = [process(30, 1, 29), process(31, 30, 29)];
        let before = [&OWN[..], &[command], &started, &other].concat();
        let after = [&OWN[..], &[process(21, 10, 19), process(22, 10, 19), process(23, 10, 23)], &other];
        assert_eq!(orphans(&before, &after.concat()), [21, 22, 23]);
    }

    #[test]
    fn a_process_that_somebody_adopted_is_no_command() {
        // In a Pod whose processes see each other, the sandbox's process adopts them, which is not in the container.
        let daemon = process(20, 5, 19);
        let before = [&OWN[..], &[daemon, process(21, 20, 19)]].concat();
        assert_eq!(orphans(&before, &[&OWN[..], &[process(21, 5, 19)]].concat()), [0; 0]);
    }
}
