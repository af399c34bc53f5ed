//! User namespace of a Pod (`hostUsers: false`), which owns the Pod's other namespaces.
//!
//! A process cannot leave a user namespace again. So a child of the keeper creates it, with the Pod's other namespaces inside, the
//! keeper writes its mapping and opens the namespaces, and the child ends.

use crate::{
    POD_INIT_NAME, USER_NAMESPACE_NAME,
    config::UserMapping,
    namespaces::{self, Kind, Namespaces, Sysctl},
    pod_init,
};
use nix::{
    sched::{CloneFlags, setns, unshare},
    sys::{prctl, signal::Signal},
    unistd::{Gid, Uid, close, setgroups, setresgid, setresuid},
};
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
};

/// What the child writes when it has created the namespaces.
const CREATED: u8 = b'c';
/// What the child writes when it has set the sysctls.
const DONE: &[u8] = b"done";
/// First argument of the process that starts the process 1.
const POD_INIT: &str = "pod-init";
/// Maximum size of the sysctls, and of an error text, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// Creates the user namespace and the namespaces of these kinds, and sets sysctls that only the root user of the namespace may set.
pub(crate) fn create(mapping: UserMapping, kinds: &[Kind], sysctls: &[Sysctl]) -> io::Result<Namespaces> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(USER_NAMESPACE_NAME).args(kinds.iter().map(|kind| kind.name())).env_clear();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let created = configure(&mut child, mapping, kinds, sysctls);
    if created.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    created
}

fn configure(child: &mut Child, mapping: UserMapping, kinds: &[Kind], sysctls: &[Sysctl]) -> io::Result<Namespaces> {
    let (Some(mut stdin), Some(mut stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(ErrorKind::BrokenPipe.into());
    };
    let mut first = [0];
    if stdout.read(&mut first)? != 1 || first[0] != CREATED {
        return Err(error_of_child(&first, &mut stdout));
    }
    let pid = child.id();
    let map = format!("0 {} {}\n", mapping.host_id, mapping.length);
    for name in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{pid}/{name}"), &map)
            .map_err(|error| io::Error::new(error.kind(), format!("failed to map IDs: {error}")))?;
    }
    let open = |name: &str| File::open(format!("/proc/{pid}/ns/{name}"));
    let mut opened = Namespaces::of_user_namespace(open("user")?);
    for kind in kinds {
        *opened.of(*kind) = Some(open(kind.name())?);
    }
    stdin.write_all(&serde_json::to_vec(sysctls)?)?;
    drop(stdin);
    let mut text = Vec::new();
    stdout.by_ref().take(MAX_TEXT).read_to_end(&mut text)?;
    if text == DONE { Ok(opened) } else { Err(error_of_child(&text, &mut stdout)) }
}

fn error_of_child(begin: &[u8], rest: &mut impl Read) -> io::Error {
    let mut text = begin.to_vec();
    let _ = rest.take(MAX_TEXT).read_to_end(&mut text);
    io::Error::other(format!("failed to create the user namespace: {}", String::from_utf8_lossy(&text)))
}

/// Starts the process 1 of a Pod in a process namespace that the Pod's user namespace owns: otherwise its containers could not mount
/// `/proc`. Returns the namespace, and the ID of the parent of the process 1, which ends with it.
pub(crate) fn start_pod_init(namespaces: &Namespaces, dir: &Path) -> io::Result<(File, i32)> {
    let user = namespaces.user.as_ref().ok_or(ErrorKind::NotFound)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), user.as_raw_fd());
    let mut command = Command::new("/proc/self/exe");
    command.arg0(USER_NAMESPACE_NAME).args([POD_INIT, path.as_str()]).env_clear();
    let pid = namespaces.inside(|| pod_init::spawn(&mut command, dir))?;
    Ok((File::open(format!("/proc/{pid}/ns/pid_for_children"))?, pid))
}

/// Starts the process 1 in the user namespace, and waits for its end.
fn run_pod_init(user_namespace: &str) -> io::Result<()> {
    setns(File::open(user_namespace)?, CloneFlags::CLONE_NEWUSER)?;
    become_root()?;
    // After the change of the user, which resets it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(POD_INIT_NAME).arg(pod_init::IN_USER_NAMESPACE).env_clear().stdin(Stdio::null());
    let mut child = command.spawn()?;
    // Its end is observed by the keeper as that of this process.
    for descriptor in 0..3 {
        let _ = close(descriptor);
    }
    child.wait().map(drop)
}

/// Main function of the child.
pub(crate) fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [purpose, user_namespace] if purpose == POD_INIT => run_pod_init(user_namespace),
        kinds => create_in_child(kinds),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = write!(io::stdout(), "{error}");
            let _ = io::stdout().flush();
            ExitCode::FAILURE
        }
    }
}

fn create_in_child(names: &[String]) -> io::Result<()> {
    let kinds = Kind::ALL.into_iter().filter(|kind| names.iter().any(|name| name == kind.name()));
    // The kernel creates the user namespace first: it owns the others.
    unshare(kinds.fold(CloneFlags::CLONE_NEWUSER, |flags, kind| flags | kind.flag()))?;
    io::stdout().write_all(&[CREATED])?;
    io::stdout().flush()?;
    let mut sysctls = Vec::new();
    io::stdin().take(MAX_TEXT).read_to_end(&mut sysctls)?;
    let sysctls: Vec<Sysctl> = serde_json::from_slice(&sysctls)?;
    become_root()?;
    namespaces::set_sysctls(&sysctls)?;
    io::stdout().write_all(DONE)?;
    io::stdout().flush()
}

/// Becomes the root user of the user namespace: the kernel lets nobody else set sysctls of IPC.
fn become_root() -> io::Result<()> {
    setgroups(&[])?;
    let (user, group) = (Uid::from_raw(0), Gid::from_raw(0));
    setresgid(group, group, group)?;
    setresuid(user, user, user)?;
    Ok(())
}
