//! Lists the shims of a containerd from /proc.

use super::config::Paths;
use std::fs;

/// Returns the PIDs of the shims of a containerd.
pub(super) fn shims(paths: &Paths) -> Vec<i32> {
    processes().into_iter().filter(|pid| is_shim(paths, *pid)).collect()
}

/// Whether a process is a shim of this containerd, whose socket is on the command line of the shim.
pub(super) fn is_shim(paths: &Paths, pid: i32) -> bool {
    let socket = paths.socket.as_os_str().as_encoded_bytes();
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut args = cmdline.split(|b| *b == 0);
    args.next().is_some_and(|program| program.windows(15).any(|w| w == b"containerd-shim")) && args.any(|a| a == socket)
}

/// Returns the PIDs of all processes and their parents.
pub(super) fn parents() -> Vec<(i32, i32)> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program, in parentheses, may contain parentheses.
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    processes().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

/// Returns the child processes of a process.
pub(super) fn children(parents: &[(i32, i32)], pid: i32) -> impl Iterator<Item = i32> {
    parents.iter().filter(move |(_, parent)| *parent == pid).map(|(child, _)| *child)
}

/// Returns the PIDs of all processes.
pub(super) fn processes() -> Vec<i32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    numbers.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}
