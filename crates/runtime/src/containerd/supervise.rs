//! Starting containerd, starting it again when it dies, and ending one that was left behind.

use super::config::{Paths, Programs};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    io,
    process::Stdio,
    time::Duration,
};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Who ran this long did not die of its start: the next one is not made to wait.
const HEALTHY: Duration = Duration::from_secs(60);
/// How long it may take to end after SIGTERM.
const END: Duration = Duration::from_secs(10);

pub(super) fn spawn(paths: &Paths, programs: &Programs) -> io::Result<Child> {
    let log = File::create(&paths.log)?;
    let child = Command::new(&programs.containerd)
        .arg("--config")
        .arg(&paths.config)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // A process group of its own: Ctrl-C in a terminal is Podium's to handle.
        .process_group(0)
        .spawn()?;
    if let Some(pid) = child.id() {
        fs::write(&paths.pid, pid.to_string())?;
    }
    Ok(child)
}

/// Keeps containerd running until told to stop it.
pub(super) async fn supervise(mut child: Child, paths: Paths, programs: Programs, stop: CancellationToken) {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = tokio::time::Instant::now();
        tokio::select! {
            status = child.wait() => tracing::error!(?status, log = %paths.log.display(), "containerd died; starting it again"),
            () = stop.cancelled() => return end(&mut child).await,
        }
        if started.elapsed() > HEALTHY {
            pause = FIRST_PAUSE;
        }
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match spawn(&paths, &programs) {
                Ok(new) => {
                    child = new;
                    break;
                }
                Err(error) => tracing::error!(%error, "containerd cannot be started"),
            }
        }
    }
}

async fn end(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // It may just have ended by itself.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if tokio::time::timeout(END, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Ends the containerd that an earlier Podium left behind when it was killed. Shims and containers live on.
pub(super) async fn end_previous(paths: &Paths) {
    let Some(pid) = fs::read_to_string(&paths.pid).ok().and_then(|s| s.trim().parse::<i32>().ok()) else { return };
    let alive = || {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let config = paths.config.as_os_str().as_encoded_bytes();
        // The number may be another program's by now.
        cmdline.split(|b| *b == 0).any(|arg| arg == config)
    };
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        if !alive() {
            return;
        }
        let _ = kill(Pid::from_raw(pid), signal);
        let deadline = tokio::time::Instant::now() + END;
        while alive() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
