//! Removal of everything that a containerd leaves. Errors are ignored: the rest is removed, too.

use crate::{process, program};
use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

/// Timeout for the exit of all processes.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Directory of containerd's tasks.
const TASKS: &str = "state/io.containerd.runtime.v2.task/k8s.io";
/// Directory in which CNI's library keeps the results for each sandbox, with the path of its network namespace.
const CNI_RESULTS: &str = "/var/lib/cni/results";

/// Removes the processes, mounts, network namespaces, bridge and files of a containerd.
pub(crate) fn remove(dir: &Path, bridge: &str) {
    kill_processes(dir);
    for socket in shim_sockets(dir) {
        let _ = fs::remove_file(socket);
    }
    // The interfaces of Pods end with their network namespaces.
    unmount_below(dir);
    let mut ip = program("ip");
    let _ = ip.args(["link", "delete", bridge]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let netns_dir = dir.join("state/netns").display().to_string();
    let results = fs::read_dir(CNI_RESULTS).into_iter().flatten().flatten().map(|entry| entry.path());
    for result in results.filter(|path| fs::read_to_string(path).is_ok_and(|text| text.contains(&netns_dir))) {
        let _ = fs::remove_file(result);
    }
    // A mount that is left must not lose its files.
    if mounts_below(dir).is_empty() {
        let _ = fs::remove_dir_all(dir);
    }
}

/// Kills containerd, its shims, containers and clients. Repeats until there are none, because a starting shim may appear late.
fn kill_processes(dir: &Path) {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        let found = process::all(dir);
        if found.is_empty() || Instant::now() > deadline {
            return;
        }
        for id in found {
            // The process may have exited meanwhile.
            let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Returns the sockets of killed shims, which are in a directory that all containerds of a machine share.
pub(crate) fn shim_sockets(dir: &Path) -> Vec<PathBuf> {
    let bundles = fs::read_dir(dir.join(TASKS)).into_iter().flatten().flatten();
    // The second one is a JSON object since 2.0.
    let files = bundles.flat_map(|bundle| ["address", "bootstrap.json"].map(|file| bundle.path().join(file)));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    let path = |text: String| Some(text.split_once("unix://")?.1.split(['"', '\n']).next()?.into());
    texts.filter_map(path).collect()
}

fn unmount_below(dir: &Path) {
    for point in mounts_below(dir).iter().rev() {
        let _ = umount2(point, MntFlags::MNT_DETACH);
    }
}

/// Returns the mount points below a directory, in the order of the mounts.
fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(dir)).collect()
}
