//! Execution of a plugin (libcni's `pkg/invoke`): environment, input, output and time limit.

use crate::{INTERFACE, PluginError};
use files::trust;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::Deserialize;
use std::{
    ffi::OsString,
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
};

/// Maximum size of a plugin's output, in bytes.
const MAX_OUTPUT: u64 = 1 << 20;
/// Maximum length of an error message, in bytes: it becomes an Event.
const MAX_MESSAGE: usize = 4096;
/// Plugins run iptables and others; the PATH of a service often lacks these directories.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Number of attempts, one each second, while a provider writes the program ("text file busy").
const BUSY_ATTEMPTS: u32 = 6;

/// Execution of a plugin.
#[derive(Debug)]
pub(crate) struct Invocation<'a> {
    pub(crate) program: &'a Path,
    /// `CNI_COMMAND`.
    pub(crate) command: &'static str,
    /// `CNI_CONTAINERID`; empty for STATUS.
    pub(crate) sandbox: &'a str,
    /// `CNI_NETNS`; empty if the namespace is gone.
    pub(crate) netns: &'a Path,
    /// `CNI_ARGS`.
    pub(crate) arguments: &'a str,
    /// `CNI_PATH`.
    pub(crate) bin_dirs: &'a [PathBuf],
    /// Standard input.
    pub(crate) input: Vec<u8>,
    pub(crate) timeout: Duration,
}

/// Error that a plugin reports on its standard output.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reported {
    code: u32,
    msg: String,
    details: String,
}

/// Returns the program of a plugin: the first regular file of that name in the directories.
///
/// # Errors
/// When there is none, or others than root may change it.
pub(crate) fn find(name: &str, bin_dirs: &[PathBuf]) -> Result<PathBuf, PluginError> {
    for dir in bin_dirs {
        let path = dir.join(name);
        if fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
            return trusted(&path).map_err(|error| PluginError::new(error.to_string()));
        }
    }
    let dirs: Vec<String> = bin_dirs.iter().map(|dir| dir.display().to_string()).collect();
    Err(PluginError::new(format!("failed to find plugin {name:?} in path [{}]", dirs.join(" "))))
}

/// Resolves a program, which only the caller and root may be able to replace or write.
fn trusted(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    let path = trust::resolve(parent)?.join(name);
    trust::check_program(&path, &fs::symlink_metadata(&path)?)?;
    Ok(path)
}

/// Kills the process group of a plugin when it is dropped: the plugin may have started others, as for IPAM.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It fails if all have ended.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Invocation<'_> {
    fn command(&self) -> Command {
        let own = std::env::var_os("PATH").unwrap_or_default();
        let system = std::env::split_paths(SYSTEM_PATH);
        let path =
            std::env::join_paths(std::env::split_paths(&own).chain(system)).unwrap_or_else(|_| SYSTEM_PATH.into());
        let plugins = std::env::join_paths(self.bin_dirs).unwrap_or_else(|_| OsString::new());
        let mut command = Command::new(self.program);
        // Nothing else of Podium's environment, which may have credentials.
        command
            .env_clear()
            .env("PATH", path)
            .env("CNI_COMMAND", self.command)
            .env("CNI_CONTAINERID", self.sandbox)
            .env("CNI_NETNS", self.netns)
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_ARGS", self.arguments)
            .env("CNI_PATH", plugins)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs the plugin and returns its output.
    ///
    /// # Errors
    /// When it reports an error, does not end in time, or writes too much; then it is killed with its process group.
    pub(crate) async fn run(self) -> Result<Vec<u8>, PluginError> {
        let failed = |error: io::Error| PluginError::new(format!("failed to run {}: {error}", self.program.display()));
        let mut child = self.spawn().await.map_err(failed)?;
        let mut group = Group(child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw));
        let Ok(finished) = tokio::time::timeout(self.timeout, communicate(&mut child, &self.input)).await else {
            let seconds = self.timeout.as_secs_f32();
            return Err(PluginError::new(format!("netplugin failed: it did not end within {seconds} s")));
        };
        let (status, stdout, stderr) = finished.map_err(failed)?;
        // It has ended, and so has its output: the group's ID may be used again.
        group.0 = None;
        if status.success() { Ok(stdout) } else { Err(failure(status, &stdout, &stderr)) }
    }

    async fn spawn(&self) -> io::Result<Child> {
        let mut attempt = 1;
        loop {
            match self.command().spawn() {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && attempt < BUSY_ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                spawned => return spawned,
            }
        }
    }
}

async fn communicate(child: &mut Child, input: &[u8]) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A plugin that exits without reading its input reports why.
            let _ = stdin.write_all(input).await;
        }
        Ok(())
    };
    let ((), stdout, stderr) = tokio::try_join!(write, read(stdout), read(stderr))?;
    Ok((child.wait().await?, stdout, stderr))
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_OUTPUT + 1).read_to_end(&mut output).await?;
    }
    if output.len() as u64 > MAX_OUTPUT {
        return Err(io::Error::other(format!("its output has more than {MAX_OUTPUT} bytes")));
    }
    Ok(output)
}

/// Returns the error of a plugin that failed (libcni's `pluginErr`).
fn failure(status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> PluginError {
    let exit = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal: {signal}"),
        (None, None) => status.to_string(),
    };
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if stdout.is_empty() && stderr.is_empty() {
        return PluginError::new(format!("netplugin failed with no error message: {exit}"));
    }
    if stdout.is_empty() {
        return PluginError::new(bounded(format!("netplugin failed: {:?}: {exit}", text(stderr))));
    }
    match serde_json::from_slice::<Reported>(stdout) {
        Ok(Reported { code, msg, details }) => {
            let message = if details.is_empty() { msg } else { format!("{msg}; {details}") };
            PluginError { code, message: bounded(message) }
        }
        Err(error) => PluginError::new(bounded(format!(
            "netplugin failed but error parsing its diagnostic message {:?}: {error}",
            text(stdout)
        ))),
    }
}

fn bounded(mut message: String) -> String {
    if let Some(end) = (0..=MAX_MESSAGE).rev().find(|end| message.is_char_boundary(*end)) {
        message.truncate(end);
    }
    message
}

#[cfg(test)]
mod tests;
