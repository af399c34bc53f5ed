//! containerd process: a child of Podium, or adopted from an earlier Podium process.

use super::{
    config::Paths,
    programs::{Programs, search_path},
    shims::processes,
};
use crate::file_limit;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::process::{Pid as RawPid, PidfdFlags, pidfd_open};
use std::{
    fs,
    io::{self, Write},
    os::fd::AsFd,
    process::Stdio,
    time::Duration,
};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

/// Timeout for the exit after a signal.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// containerd process, which can be waited for and stopped. Dropping it leaves it running.
pub(super) struct Process {
    pid: Pid,
    handle: Handle,
}

enum Handle {
    /// Child process, which must be waited for to be reaped.
    Child(Box<Child>),
    /// Process of an earlier Podium process. The token is cancelled on its exit.
    Adopted(CancellationToken),
}

impl Process {
    pub(super) fn spawn(paths: &Paths, programs: &Programs) -> io::Result<Self> {
        let log = files::create_private(&paths.log)?;
        let child = file_limit::command(&programs.containerd)
            .arg("--config")
            .arg(&paths.config)
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A separate process group does not receive SIGINT from the terminal.
            .process_group(0)
            .spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).ok_or_else(|| io::Error::other("it has no pid"))?;
        files::create_private(&paths.pid)?.write_all(pid.to_string().as_bytes())?;
        Ok(Self { pid: Pid::from_raw(pid), handle: Handle::Child(Box::new(child)) })
    }

    /// Adopts the process that an earlier Podium process left running with this configuration file, if there is one. All
    /// processes are searched if the PID file is missing, because that Podium process may have been killed before it wrote
    /// the file. Two containerd processes would block on each other's file locks.
    pub(super) fn adopt(paths: &Paths) -> Option<Self> {
        let recorded = fs::read_to_string(&paths.pid).ok().and_then(|pid| pid.trim().parse().ok());
        recorded.and_then(|pid| Self::open(paths, pid)).or_else(|| {
            let all = if paths.log.exists() { processes() } else { Vec::new() };
            all.into_iter().filter(|pid| is_configured(paths, *pid)).find_map(|pid| Self::open(paths, pid))
        })
    }

    /// Opens the process of this PID, if it is a containerd with this configuration file.
    fn open(paths: &Paths, pid: i32) -> Option<Self> {
        let descriptor = pidfd_open(RawPid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // Checked after the pidfd is open: before that, the PID may have been reused.
        is_configured(paths, pid).then_some(())?;
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        // A blocking task of tokio would delay Podium's exit until containerd exits.
        let wait = move || {
            let _guard = guard;
            // A pidfd is readable once the process has exited.
            while poll(&mut [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)
                == Err(Errno::EINTR)
            {}
        };
        std::thread::Builder::new().name("containerd".to_owned()).spawn(wait).ok()?;
        Some(Self { pid: Pid::from_raw(pid), handle: Handle::Adopted(ended) })
    }

    /// Waits for the exit of the process. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        match &mut self.handle {
            Handle::Child(child) => drop(child.wait().await),
            Handle::Adopted(ended) => ended.cancelled().await,
        }
    }

    /// Stops the process: SIGTERM, and SIGKILL after 10 s. Shims and containers keep running.
    pub(super) async fn end(&mut self) {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            // The process may have exited meanwhile.
            let _ = kill(self.pid, signal);
            if tokio::time::timeout(EXIT_TIMEOUT, self.ended()).await.is_ok() {
                return;
            }
        }
    }
}

/// Whether the command line of a process contains this configuration file.
fn is_configured(paths: &Paths, pid: i32) -> bool {
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut args = cmdline.split(|b| *b == 0);
    args.by_ref().any(|arg| arg == b"--config") && args.next() == Some(paths.config.as_os_str().as_encoded_bytes())
}
