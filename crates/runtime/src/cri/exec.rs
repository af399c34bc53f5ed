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
///
/// A command that was brought into the container leads a session, and has its parent outside.
fn orphans(before: &[Process], after: &[Process]) -> Vec<i32> {
    let outside = |p: &&Process| p.session == p.pid && !before.iter().any(|q| q.pid == p.parent);
    let gone = before.iter().filter(outside).filter(|p| !after.iter().any(|q| q.pid == p.pid && q.began == p.began));
    let gone: Vec<i32> = gone.map(|p| p.pid).collect();
    let mut family = gone.clone();
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
    after.iter().map(|p| p.pid).filter(|pid| family.contains(pid) && !gone.contains(pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_command_that_is_gone_has_started_is_an_orphan() {
        let process = |pid, parent, session| Process { pid, parent, session, began: 7 };
        // The container's own process and its child, a command with a child, a grandchild in a session of its own and
        // one whose parent has gone, and another command.
        let init = [process(10, 1, 10), process(11, 10, 10)];
        let command = process(20, 1, 20);
        let started = [process(23, 22, 23), process(22, 20, 20), process(24, 10, 20)];
        let other = [process(30, 1, 30), process(31, 30, 30)];
        let before = [&init[..], &[command], &started, &other].concat();
        assert_eq!(orphans(&before, &before), [0; 0]);
        // What it has left behind has another parent now, and may have begun more.
        let after =
            [&init[..], &[process(22, 10, 20), process(23, 22, 23), process(24, 10, 20), process(25, 23, 23)], &other];
        assert_eq!(orphans(&before, &after.concat()), [22, 23, 24, 25]);
        let again = Process { began: 9, ..command };
        assert_eq!(orphans(&before, &[&init[..], &[again]].concat()), [0; 0]);
    }
}
