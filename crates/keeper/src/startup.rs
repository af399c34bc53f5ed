//! Start of a keeper.

use crate::{
    config::{KEEPER_CONFIG, KEEPER_LOG, KEEPER_PID, KEEPER_SOCKET, KeeperConfig, NamespaceMode, read_json},
    keeper::Keeper,
    namespaces::{self, Namespaces},
    pod_init, process,
    protocol::{Hello, PROTOCOL_VERSION},
    socket, user_namespace,
};
use nix::{
    sys::{
        prctl,
        stat::{Mode, umask},
    },
    unistd::{chdir, setsid},
};
use rustix::{
    fs::FlockOperation,
    net::SocketType,
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
};

/// What a keeper writes to stdout when clients can connect. Other output is an error.
pub(crate) const READY: &[u8] = b"ready\n";
/// Maximum number of log lines.
const MAX_LOG_LINES: usize = 1000;

/// The umask of containers, which they inherit.
const UMASK: Mode = Mode::from_bits_truncate(0o022);
/// The umask while the socket is created: mode 0600.
const PRIVATE_UMASK: Mode = Mode::from_bits_truncate(0o177);

/// Process ID and start time of a keeper: `keeper.pid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PidFile {
    pid: i32,
    start_time: u64,
}

/// Writes a line to the keeper's log, whose size is bounded.
pub(crate) fn log(text: &str) {
    static LINES: AtomicUsize = AtomicUsize::new(0);
    if LINES.fetch_add(1, Ordering::Relaxed) < MAX_LOG_LINES {
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Main function of a keeper.
pub(crate) fn main() -> ExitCode {
    let mut keeper = match start() {
        Ok(keeper) => keeper,
        Err(error) => {
            let _ = writeln!(io::stdout(), "{error}");
            return ExitCode::FAILURE;
        }
    };
    // A client that died meanwhile is no reason to end: another one may come.
    let written = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    if let Err(error) = detach_from_client().and(written) {
        log(&format!("failed to report the start: {error}"));
    }
    if let Err(error) = keeper.run() {
        log(&format!("failed to wait for events: {error}"));
        return ExitCode::FAILURE;
    }
    for name in [KEEPER_SOCKET, KEEPER_PID] {
        let _ = fs::remove_file(keeper.dir.join(name));
    }
    if let Some(pid) = keeper.hello.pod_init {
        let _ = process::send_signal(pid, nix::libc::SIGKILL);
    }
    ExitCode::SUCCESS
}

/// Closes the pipe of stdout, with which the client waits for the start.
fn detach_from_client() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    Ok(dup2_stdout(&null)?)
}

fn start() -> io::Result<Keeper> {
    let argument = std::env::args_os().nth(1);
    let dir = argument.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "missing the sandbox's directory"))?;
    let dir = std::path::absolute(PathBuf::from(dir))?;
    process::close_inherited_descriptors()?;
    // It fails for the leader of a process group, which a child process is not.
    let _ = setsid();
    prctl::set_child_subreaper(true)?;
    let _ = prctl::set_name(c"podium-keeper");
    umask(UMASK);
    chdir("/")?;
    let directory = File::open(&dir)?;
    dup2_stderr(files::append_private(&dir.join(KEEPER_LOG))?)?;
    // Held until the end of the process.
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| io::Error::new(error.kind(), format!("another keeper runs: {error}")))?;
    let config: KeeperConfig = read_json(&dir.join(KEEPER_CONFIG))?;
    if config.version != PROTOCOL_VERSION {
        let text = format!("{KEEPER_CONFIG} has version {}, the keeper {PROTOCOL_VERSION}", config.version);
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    }
    let mut namespaces = namespaces::create(&config)?;
    let mut pod_init = None;
    if config.namespaces.pid == NamespaceMode::Pod {
        // In the Pod's other namespaces, too: a container with `CAP_SYS_PTRACE` can make it do what it wants.
        let (namespace, pid) = if namespaces.user.is_some() {
            user_namespace::start_pod_init(&namespaces, &dir)?
        } else {
            let pid = namespaces.inside(|| namespaces::in_new_pid_namespace(|| pod_init::start(&dir)))?;
            (File::open(format!("/proc/{pid}/ns/pid"))?, pid)
        };
        (namespaces.pid, pod_init) = (Some(namespace), Some(pid));
    }
    listen(config, dir, directory, namespaces, pod_init)
}

fn listen(
    config: KeeperConfig,
    dir: PathBuf,
    directory: File,
    namespaces: Namespaces,
    pod_init: Option<i32>,
) -> io::Result<Keeper> {
    let pid_file = PidFile { pid: nix::unistd::getpid().as_raw(), start_time: process::start_time()? };
    let hello = Hello {
        version: PROTOCOL_VERSION,
        sandbox_id: config.sandbox_id.clone(),
        pid: pid_file.pid,
        start_time: pid_file.start_time,
        pod_init,
        namespaces: namespaces.descriptors(),
    };
    let listener = listen_privately(&dir, &directory)?;
    let keeper = Keeper::new((config, dir), hello, namespaces, (listener, directory))?;
    // Not synced: no process survives a power failure.
    files::replace_private_unsynced(&keeper.dir.join(KEEPER_PID), &serde_json::to_vec(&pid_file)?)?;
    Ok(keeper)
}

fn listen_privately(dir: &Path, directory: &File) -> io::Result<OwnedFd> {
    match fs::remove_file(dir.join(KEEPER_SOCKET)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    umask(PRIVATE_UMASK);
    let listener = socket::listen_in(directory.as_fd(), KEEPER_SOCKET, SocketType::SEQPACKET);
    umask(UMASK);
    listener
}
