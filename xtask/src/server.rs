//! A Podium of a chore's own.

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

/// How long a server may take until it is ready.
const LONGEST: Duration = Duration::from_secs(60);

/// A Podium that is removed in the end, whatever happens.
pub(crate) struct Server {
    podium: PathBuf,
    path: OsString,
    data: PathBuf,
    log: PathBuf,
    config: PathBuf,
    process: Child,
}

impl Server {
    /// Boots the Podium that was built, and waits until it and its node are ready; `kubelet` is the configuration of that.
    ///
    /// # Errors
    /// When it does not become ready in time.
    pub(crate) fn boot(purpose: &str, path: OsString, kubelet: Option<&str>) -> Result<Self> {
        let podium = step::target_dir().join("debug/podium");
        let data = std::env::temp_dir().join(format!("podium-{purpose}-{}", std::process::id()));
        let log = data.with_extension("log");
        let errors = File::create(&log).with_context(|| log.display().to_string())?;
        let mut up = Command::new(&podium);
        up.arg("up").arg("--data-dir").arg(&data).args(["--bind", "127.0.0.1:0"]);
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

    /// For the one who may do everything.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    /// What it says on its standard error, so far.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// # Errors
    /// When it is not running any more.
    pub(crate) fn still_runs(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("Podium ended with {status}:\n{}", tail(&self.log)),
        }
    }

    /// Waits until the node is there too: some cases ask it.
    fn wait(&mut self) -> Result<()> {
        let said = lines(self.process.stdout.take().context("Podium has no output")?);
        while let Ok(line) = said.recv_timeout(LONGEST) {
            if line.contains("is Ready after") {
                return Ok(());
            }
        }
        bail!("Podium did not become ready:\n{}", tail(&self.log))
    }
}

/// The end of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// What a program says, line by line. It is read to its end also when nobody listens, so that the program is not held up.
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
        if let Err(error) = step::run("remove the server", &mut down) {
            println!("{error:#}");
        }
        // It ends by itself once it is taken down; if that failed, it must not outlive the suite.
        drop(self.process.kill());
        drop(self.process.wait());
        drop(std::fs::remove_file(&self.log));
        drop(std::fs::remove_file(&self.config));
    }
}
