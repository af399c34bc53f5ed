//! Hybrid cgroups, for OCI runtimes that refuse them.

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
    unistd::chdir,
};
use std::{
    fs::{self, File},
    io,
};

/// Mount point of the cgroup hierarchies.
const ROOT: &str = "/sys/fs/cgroup";
/// Mount point of cgroup v2 on a hybrid machine.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// Runs a function, whose child processes have a mount namespace without cgroup v2 if the machine has controllers in both
/// versions. Otherwise it runs as it is.
///
/// The namespace has the mount propagation of the machine, except for the cgroup hierarchies.
pub(crate) fn without_v2_of_hybrid<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let controllers = fs::read_to_string(format!("{UNIFIED}/cgroup.controllers")).unwrap_or_default();
    if controllers.trim().is_empty() {
        return start();
    }
    let own = File::open("/proc/self/ns/mnt")?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let result = unmount_v2().and_then(|()| start());
    // Changes the working directory, too.
    setns(own, CloneFlags::CLONE_NEWNS)?;
    chdir("/")?;
    result
}

fn unmount_v2() -> io::Result<()> {
    // Else the machine would lose it.
    mount(None::<&str>, ROOT, None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    Ok(umount2(UNIFIED, MntFlags::MNT_DETACH)?)
}
