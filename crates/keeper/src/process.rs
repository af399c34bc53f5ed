//! Child processes and `/proc`.

use nix::{
    sys::signal::{SigSet, Signal, kill},
    unistd::Pid,
};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    process::Command,
};

/// Maximum number of descendants that are searched for.
const MAX_DESCENDANTS: usize = 4096;
/// Variables of systemd's protocols. The OCI runtime would pass them on to the container.
const SYSTEMD_VARIABLES: [&str; 4] = ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET"];

/// Returns the signals that the event loop waits for.
pub(crate) fn child_signals() -> SigSet {
    SigSet::from(Signal::SIGCHLD)
}

/// Starts a child process, which is reaped by the event loop, and returns its ID.
///
/// A child inherits the signal mask, and a container must not begin with SIGCHLD blocked. A signal meanwhile is lost,
/// so the caller looks for ended children afterwards.
pub(crate) fn spawn(command: &mut Command) -> io::Result<i32> {
    for variable in SYSTEMD_VARIABLES {
        command.env_remove(variable);
    }
    let signals = child_signals();
    signals.thread_unblock()?;
    let child = command.spawn();
    signals.thread_block()?;
    i32::try_from(child?.id()).map_err(|_| ErrorKind::InvalidData.into())
}

/// Sends a signal to a process that has not been reaped.
pub(crate) fn send_signal(pid: i32, signal: i32) -> io::Result<()> {
    let signal = Signal::try_from(signal)?;
    kill(positive(pid)?, signal)?;
    Ok(())
}

/// Process groups and "all processes" are never meant.
fn positive(pid: i32) -> io::Result<Pid> {
    if pid > 1 { Ok(Pid::from_raw(pid)) } else { Err(ErrorKind::InvalidInput.into()) }
}

/// Sends a signal to a process that has not been reaped, and then to those that were its descendants before. Those that have
/// lost their parent, as daemons do, are found by their session: the OCI runtime starts each process in one of its own.
pub(crate) fn send_signal_to_tree(pid: i32, signal: i32) -> io::Result<()> {
    let mut found = BTreeSet::from([pid]);
    found.extend(session_members(pid).into_iter().take(MAX_DESCENDANTS));
    let mut pending: Vec<i32> = found.iter().copied().collect();
    while let Some(parent) = pending.pop() {
        let new = children(parent).into_iter().filter(|child| found.len() < MAX_DESCENDANTS && found.insert(*child));
        pending.extend(new);
    }
    let result = send_signal(pid, signal);
    for descendant in found.into_iter().filter(|found| *found != pid) {
        let _ = send_signal(descendant, signal);
    }
    result
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    texts.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// Returns the processes of a session; none if `pid` does not lead one.
fn session_members(pid: i32) -> Vec<i32> {
    let Ok(leader) = u64::try_from(pid) else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let session = |pid: i32| stat_field(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, SESSION);
    pids.filter(|other| session(*other) == Some(leader)).collect()
}

/// Fields of `stat` in proc(5), counted from the one after the name.
const SESSION: usize = 3;
const START_TIME: usize = 19;

fn stat_field(stat: &str, field: usize) -> Option<u64> {
    // The name, in parentheses, may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(field)?.parse().ok()
}

/// Returns the start time of this process, in clock ticks after boot.
pub(crate) fn start_time() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    stat_field(&stat, START_TIME).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Closes all inherited descriptors except stdin, stdout and stderr.
pub(crate) fn close_inherited_descriptors() -> io::Result<()> {
    let names: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();
    for descriptor in names {
        // That of the directory is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader},
        process::Stdio,
        time::{Duration, Instant},
    };

    fn is_alive(pid: i32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[test]
    fn signal_to_tree_reaches_daemons_of_the_session() {
        let script = "(sleep 1000 & echo $!); sleep 1000 & echo $!; exec sleep 1000";
        let mut command = Command::new("setsid");
        let mut leader = command.args(["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(leader.stdout.take().unwrap()).lines().take(2);
        let others: Vec<i32> = lines.map(|line| line.unwrap().trim().parse().unwrap()).collect();
        let pid = i32::try_from(leader.id()).unwrap();
        send_signal_to_tree(pid, Signal::SIGKILL as i32).unwrap();
        leader.wait().unwrap();
        let start = Instant::now();
        while let Some(alive) = others.iter().find(|pid| is_alive(**pid)) {
            assert!(start.elapsed() < Duration::from_secs(20), "{alive} of {others:?} is alive");
            std::thread::yield_now();
        }
    }

    #[test]
    fn fields_of_stat_are_found_behind_any_name() {
        let stat = "20 (a) b (c)) S 5 20 21 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!((stat_field(stat, SESSION), stat_field(stat, START_TIME)), (Some(21), Some(4242)));
        assert_eq!((stat_field(stat, 99), stat_field("20", SESSION)), (None, None));
    }
}
