//! A temporary Podium for a task.

use crate::step;
use anyhow::{Context, Result, bail};
use std::{
    ffi::OsString,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

/// Start timeout.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A temporary Podium, removed on drop.
pub(crate) struct Server {
    podium: PathBuf,
    path: OsString,
    data: PathBuf,
    log: PathBuf,
    config: PathBuf,
    process: Child,
}

/// Returns an image store for the servers of all tasks.
pub(crate) fn image_store() -> PathBuf {
    step::target_dir().join("test-images")
}

impl Server {
    /// Starts the built Podium and waits until its node is Ready; `kubelet` is the `KubeletConfiguration`.
    ///
    /// # Errors
    /// When Podium does not become ready in time.
    pub(crate) fn boot(purpose: &str, path: OsString, kubelet: Option<&str>) -> Result<Self> {
        let podium = step::target_dir().join("debug/podium");
        let data = std::env::temp_dir().join(format!("podium-{purpose}-{}", std::process::id()));
        let log = data.with_extension("log");
        let errors = File::create(&log).with_context(|| log.display().to_string())?;
        let mut up = Command::new(&podium);
        up.arg("up").arg("--data-dir").arg(&data).args(["--bind", "127.0.0.1:0"]);
        // Nothing of the machine's images is used or removed.
        up.arg("--image-store").arg(image_store());
        let config = data.with_extension("kubelet.yaml");
        if let Some(kubelet) = kubelet {
            std::fs::write(&config, kubelet)?;
            up.arg("--kubelet-config").arg(&config);
        }
        let process = up
            .env("PATH", &path)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| podium.display().to_string())?;
        let mut server = Self { podium, path, data, log, config, process };
        server.wait()?;
        Ok(server)
    }

    /// Returns the path of the admin kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    /// Returns the path of the log, which has the standard error.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Checks that Podium is running.
    ///
    /// # Errors
    /// When Podium has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("Podium ended with {status}:\n{}", tail(&self.log)),
        }
    }

    /// Waits until the node is Ready, which some cases need.
    fn wait(&mut self) -> Result<()> {
        let output_lines = lines(self.process.stdout.take().context("Podium has no output")?);
        while let Ok(line) = output_lines.recv_timeout(START_TIMEOUT) {
            if line.contains("is Ready after") {
                return Ok(());
            }
        }
        bail!("Podium did not become ready:\n{}", tail(&self.log))
    }
}

/// Returns the end of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Sends the lines of a program's output. The output is read to its end without a receiver too, so that the pipe never blocks.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            drop(sender.send(line));
        }
    });
    lines
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut down = Command::new(&self.podium);
        down.arg("down").arg("--data-dir").arg(&self.data).env("PATH", &self.path);
        if let Err(error) = step::run("remove the cluster", &mut down) {
            println!("{error:#}");
        }
        // Podium ends by itself after `podium down`. If that failed, it must not outlive the task.
        drop(self.process.kill());
        drop(self.process.wait());
        drop(std::fs::remove_file(&self.log));
        drop(std::fs::remove_file(&self.config));
    }
}
