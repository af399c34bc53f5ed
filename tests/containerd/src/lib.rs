//! A containerd with the CRI, which is not Podium's: the runtime of `podium up --runtime-endpoint` in tests and benchmarks.
//!
//! Each one has its own configuration, files, bridge and Pod addresses, and nothing of it is left when it is dropped. What is
//! left of a killed process is removed by the next start of one.
#![forbid(unsafe_code)]

mod cleanup;
mod config;
mod process;
mod slot;

use slot::Slot;
use std::{
    ffi::OsString,
    fs::File,
    io,
    os::unix::{net::UnixStream, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Timeout for the start of containerd.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running containerd, with an image for sandboxes and no other one.
#[derive(Debug)]
pub struct Containerd {
    child: Child,
    slot: Slot,
}

impl Containerd {
    /// Starts containerd and waits until it is ready.
    ///
    /// # Errors
    /// When containerd or the CNI plugins are not installed, or containerd is not ready in time.
    pub fn start() -> io::Result<Self> {
        let slot = Slot::take()?;
        config::write(&slot)?;
        let mut containerd = Self { child: spawn(&slot)?, slot };
        containerd.wait_until_ready()?;
        containerd.import_sandbox_image()?;
        Ok(containerd)
    }

    /// Returns the endpoint of the CRI.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.slot.socket().display())
    }

    /// Returns the directory of all its files, mounts included.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.slot.dir()
    }

    /// Returns the process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills containerd by SIGKILL. Containers keep running.
    ///
    /// # Errors
    /// When the process cannot be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Starts containerd again after [`Containerd::kill`], and waits until it is ready.
    ///
    /// # Errors
    /// When containerd is not ready in time.
    pub fn restart(&mut self) -> io::Result<()> {
        self.child = spawn(&self.slot)?;
        self.wait_until_ready()
    }

    /// Waits until containerd serves its API. It creates the socket after it has loaded its plugins.
    fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = UnixStream::connect(self.slot.socket()) {
            let exit = self.child.try_wait()?;
            if exit.is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.slot.log()).unwrap_or_default();
                return Err(io::Error::other(format!("containerd is not ready: {error}, {exit:?}; its log:\n{log}")));
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }

    fn import_sandbox_image(&self) -> io::Result<()> {
        let archive = self.dir().join("pause.tar");
        test_images::pause(&archive).map_err(io::Error::other)?;
        let mut ctr = program("ctr");
        ctr.arg("--address").arg(self.slot.socket()).args(["--namespace", "k8s.io", "images", "import"]).arg(archive);
        let output = ctr.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("ctr images import: {}", String::from_utf8_lossy(&output.stderr))))
    }
}

impl Drop for Containerd {
    /// Kills containerd and all containers. Pods that Podium removes before have their networks removed by CNI plugins.
    fn drop(&mut self) {
        // It may be dead already. The slot removes everything else.
        let _ = self.kill();
    }
}

fn spawn(slot: &Slot) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(slot.log())?;
    let mut containerd = program("containerd");
    containerd.arg("--config").arg(slot.config()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // Ctrl-C ends it after its Pods.
    containerd.process_group(0).spawn()
}

/// Returns a command with the directories that containerd and CNI plugins need in `PATH`.
fn program(name: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    let mut command = Command::new(name);
    command.env("PATH", path);
    command
}

#[cfg(test)]
mod tests;
