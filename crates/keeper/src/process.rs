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

/// Sends a signal to a process that has not been reaped, and then to those that were its descendants before.
pub(crate) fn send_signal_to_tree(pid: i32, signal: i32) -> io::Result<()> {
    let mut found = BTreeSet::from([pid]);
    let mut pending = vec![pid];
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

/// Returns the start time of this process, in clock ticks after boot.
pub(crate) fn start_time() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may contain anything.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let field = fields.split_whitespace().nth(19).and_then(|field| field.parse().ok());
    field.ok_or_else(|| ErrorKind::InvalidData.into())
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
