//! One containerd process: started by us, or by a Podium before us.

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

/// How long it may take to end after SIGTERM.
const END: Duration = Duration::from_secs(10);

/// A process that can be waited for and ended. Dropping it does neither.
pub(super) struct Process {
    pid: Pid,
    handle: Handle,
}

enum Handle {
    /// Ours: it has to be waited for, or it stays in the process table.
    Child(Box<Child>),
    /// Of an earlier Podium: cancelled when it has ended.
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
            // A process group of its own: Ctrl-C in a terminal is Podium's to handle.
            .process_group(0)
            .spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).ok_or_else(|| io::Error::other("it has no pid"))?;
        files::create_private(&paths.pid)?.write_all(pid.to_string().as_bytes())?;
        Ok(Self { pid: Pid::from_raw(pid), handle: Handle::Child(Box::new(child)) })
    }

    /// The one that an earlier Podium left running with this configuration file, if there is one. That Podium may have been
    /// killed before it noted which process that is: two would wait for each other's files.
    pub(super) fn adopt(paths: &Paths) -> Option<Self> {
        let noted = fs::read_to_string(&paths.pid).ok().and_then(|pid| pid.trim().parse().ok());
        noted.and_then(|pid| Self::held(paths, pid)).or_else(|| {
            let all = if paths.log.exists() { processes() } else { Vec::new() };
            all.into_iter().filter(|pid| is_configured(paths, *pid)).find_map(|pid| Self::held(paths, pid))
        })
    }

    /// The process of this number, if it is a containerd with this configuration file.
    fn held(paths: &Paths, pid: i32) -> Option<Self> {
        let descriptor = pidfd_open(RawPid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // Looked at once the descriptor holds the process: the number may have become another program's.
        is_configured(paths, pid).then_some(())?;
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        // A thread of its own rather than one of the pool's: Podium may end before containerd does.
        let wait = move || {
            let _guard = guard;
            // The descriptor becomes readable when the process has ended.
            while poll(&mut [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)
                == Err(Errno::EINTR)
            {}
        };
        std::thread::Builder::new().name("containerd".to_owned()).spawn(wait).ok()?;
        Some(Self { pid: Pid::from_raw(pid), handle: Handle::Adopted(ended) })
    }

    /// Waits until it has ended. Safe to be cancelled.
    pub(super) async fn ended(&mut self) {
        match &mut self.handle {
            Handle::Child(child) => drop(child.wait().await),
            Handle::Adopted(ended) => ended.cancelled().await,
        }
    }

    /// Ends it: SIGTERM, and SIGKILL after 10 s. Shims and containers live on.
    pub(super) async fn end(&mut self) {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            // It may just have ended by itself.
            let _ = kill(self.pid, signal);
            if tokio::time::timeout(END, self.ended()).await.is_ok() {
                return;
            }
        }
    }
}

/// Whether this process has our configuration file on its command line.
fn is_configured(paths: &Paths, pid: i32) -> bool {
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut args = cmdline.split(|b| *b == 0);
    args.by_ref().any(|arg| arg == b"--config") && args.next() == Some(paths.config.as_os_str().as_encoded_bytes())
}
