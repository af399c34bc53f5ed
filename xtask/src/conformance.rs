//! `cargo xtask conformance`: what Kubernetes documents about its API, asked of a server.

use crate::{setup, step};
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

/// Builds the suite and runs it against the server of this kubeconfig, or else against a Podium of its own.
///
/// # Errors
/// When a case fails, or when there is no server to ask.
pub(crate) fn run(kubeconfig: Option<&Path>, filter: Option<&str>) -> Result<()> {
    // All of it, as the tests do: another selection means other features of the dependencies, and to build those again.
    step::run("build", &mut step::cargo(&["build", "--workspace", "--all-targets"]))?;
    match kubeconfig {
        Some(kubeconfig) => ask(kubeconfig, filter),
        None => of_podium(filter, setup::path_with(&setup::run()?)),
    }
}

/// Boots the Podium that was built, asks it, and removes everything.
///
/// # Errors
/// When it does not boot, or when a case fails.
pub(crate) fn of_podium(filter: Option<&str>, path: OsString) -> Result<()> {
    let server = Server::boot(path)?;
    ask(&server.data.join("admin.kubeconfig"), filter)
}

fn ask(kubeconfig: &Path, filter: Option<&str>) -> Result<()> {
    let mut command = Command::new(step::target_dir().join("debug/conformance"));
    command.arg("--kubeconfig").arg(kubeconfig).args(filter);
    step::run("what Kubernetes documents about its API", &mut command)
}

/// A Podium that is removed in the end, whatever happens.
struct Server {
    podium: PathBuf,
    path: OsString,
    data: PathBuf,
    log: PathBuf,
    process: Child,
}

impl Server {
    fn boot(path: OsString) -> Result<Self> {
        let podium = step::target_dir().join("debug/podium");
        let data = std::env::temp_dir().join(format!("podium-conformance-{}", std::process::id()));
        let log = data.with_extension("log");
        let errors = File::create(&log).with_context(|| log.display().to_string())?;
        let process = Command::new(&podium)
            .arg("up")
            .arg("--data-dir")
            .arg(&data)
            .args(["--bind", "127.0.0.1:0"])
            .env("PATH", &path)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| podium.display().to_string())?;
        let mut server = Self { podium, path, data, log, process };
        server.wait()?;
        Ok(server)
    }

    /// Waits until the node is there too: some cases ask it.
    fn wait(&mut self) -> Result<()> {
        let said = lines(self.process.stdout.take().context("Podium has no output")?);
        while let Ok(line) = said.recv_timeout(LONGEST) {
            if line.contains("is Ready after") {
                return Ok(());
            }
        }
        bail!("Podium did not become ready:\n{}", std::fs::read_to_string(&self.log).unwrap_or_default())
    }
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
    }
}
