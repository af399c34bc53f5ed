//! Process 1 of a Pod that shares its process namespace.
//!
//! It reaps orphans, and its end ends all processes of the Pod. SIGTERM ends it, as the `pause` program.
//!
//! Containers see it, so that it has nothing to give: no capabilities, no descriptors, an empty file system, and the
//! user of upstream's `pause`. It is executed through a read-only mount: a container that opens `/proc/1/exe` cannot
//! write to it later (CVE-2019-5736).

use crate::POD_INIT_NAME;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::{Gid, Uid, chdir, close, pivot_root, setgroups, setresgid, setresuid},
};
use rustix::{
    process::{WaitOptions, wait},
    thread::{CapabilitySet, CapabilitySets, set_capabilities},
};
use std::{
    ffi::OsString,
    fs,
    io::{self, ErrorKind, Read, Write},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

/// User and group of the process, as of upstream's `pause`.
const PAUSE_ID: u32 = 65535;
/// Argument after the program was executed through the read-only mount.
const SECOND_STAGE: &str = "isolated";
/// Argument in a user namespace of the Pod.
pub(crate) const IN_USER_NAMESPACE: &str = "user-namespace";
/// Mount point of the program.
const PROGRAM: &str = "program";

/// Starts the process as the first child in a new namespace. Returns its ID in the keeper's namespace.
pub(crate) fn start(sandbox: &Path) -> io::Result<i32> {
    let mut command = Command::new("/proc/self/exe");
    // Containers see the arguments, which must not name a directory of the node.
    command.arg0(POD_INIT_NAME).env_clear();
    spawn(&mut command, sandbox)
}

/// Starts a command, and waits until it or its child is the process 1. Returns the ID of the command's process.
pub(crate) fn spawn(command: &mut Command, sandbox: &Path) -> io::Result<i32> {
    let (mut reader, writer) = io::pipe()?;
    command.current_dir(sandbox).stdin(Stdio::null()).stdout(writer);
    let child = command.spawn()?;
    // The command has the other end of the pipe.
    command.stdout(Stdio::null());
    let mut text = String::new();
    reader.by_ref().take(4096).read_to_string(&mut text)?;
    if text != "ready" {
        return Err(io::Error::other(format!("failed to start the process 1 of the Pod: {text}")));
    }
    i32::try_from(child.id()).map_err(|_| ErrorKind::InvalidData.into())
}

/// Main function of the process.
pub(crate) fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let run = || match arguments.as_slice() {
        [] => execute_read_only(&std::env::current_dir()?),
        [stage] if stage == SECOND_STAGE => isolate(&std::env::current_dir()?),
        [stage] if stage == IN_USER_NAMESPACE => isolate_in_user_namespace(),
        _ => Err(ErrorKind::InvalidInput.into()),
    };
    if let Err(error) = run() {
        let _ = write!(io::stdout(), "{error}");
        let _ = io::stdout().flush();
        return ExitCode::FAILURE;
    }
    reap_until_terminated()
}

/// Executes the program again through a read-only mount in an own mount namespace.
fn execute_read_only(sandbox: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), sandbox, Some("tmpfs"), flags, Some("size=4k,nr_inodes=8,mode=555"))?;
    let Some(source) = own_program()? else { return isolate(sandbox) };
    let program = sandbox.join(PROGRAM);
    files::create_private(&program)?;
    mount(Some(&source), &program, none, MsFlags::MS_BIND, none)?;
    mount(none, &program, none, flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none)?;
    Err(Command::new(&program).arg0(POD_INIT_NAME).arg(SECOND_STAGE).env_clear().exec())
}

/// Returns the path of this program, or `None` if it was replaced. Then nothing executes the old file again, and writing to
/// it changes nothing. `/proc/self/exe` cannot be mounted: it belongs to the mount namespace of before.
fn own_program() -> io::Result<Option<PathBuf>> {
    let path = fs::read_link("/proc/self/exe")?;
    let own = fs::metadata("/proc/self/exe")?;
    let is_own = |other: fs::Metadata| (other.dev(), other.ino()) == (own.dev(), own.ino());
    Ok(fs::metadata(&path).is_ok_and(is_own).then_some(path))
}

/// Gives up everything except the process itself.
fn isolate(sandbox: &Path) -> io::Result<()> {
    let program: PathBuf = sandbox.join(PROGRAM);
    if program.exists() {
        umount2(&program, MntFlags::MNT_DETACH)?;
        fs::remove_file(&program)?;
    }
    let none = None::<&str>;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    mount(none, sandbox, none, flags | MsFlags::MS_REMOUNT, none)?;
    become_powerless(sandbox)
}

/// As [`execute_read_only`] and [`isolate`], in a user namespace: no process of the namespace can write to the program, and its root
/// user may not look up the sandbox's directory.
fn isolate_in_user_namespace() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let root = Path::new("/proc");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    mount(Some("tmpfs"), root, Some("tmpfs"), flags, Some("size=4k,nr_inodes=8,mode=555"))?;
    become_powerless(root)
}

/// Changes the root directory, and gives up all capabilities.
fn become_powerless(root: &Path) -> io::Result<()> {
    chdir(root)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    let _ = prctl::set_name(c"podium-pod-init");
    prctl::set_no_new_privs()?;
    let (user, group) = (Uid::from_raw(PAUSE_ID), Gid::from_raw(PAUSE_ID));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    prctl::set_dumpable(false)?;
    // Without the keeper, nothing would reap the containers.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}

fn reap_until_terminated() -> ExitCode {
    let signals = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT]);
    if signals.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    let _ = io::stdout().write_all(b"ready").and_then(|()| io::stdout().flush());
    // The keeper reads stdout until its end: it must be the last one that is closed.
    for descriptor in [0, 2, 1] {
        let _ = close(descriptor);
    }
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {},
            Ok(_) => return ExitCode::SUCCESS,
            Err(_) => {}
        }
    }
}
