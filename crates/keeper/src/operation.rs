//! Runs of the OCI runtime.

use crate::{
    cgroups,
    config::{OciRuntime, default_timeout_seconds},
    connection::ReplyTo,
    process,
    protocol::{CallError, ErrorCode},
    socket::{self, listen_in},
};
use rustix::{
    fs::MemfdFlags,
    net::{SocketFlags, SocketType, accept_with},
};
use serde::Deserialize;
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, ErrorKind, Seek, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Maximum size of the runtime's messages that are read.
const MAX_OUTPUT: u64 = 64 << 10;
/// Maximum length of an error text in characters.
const MAX_TEXT: usize = 4096;
/// Maximum size of what `wait` writes: a container ID and an exit code.
const MAX_WAIT_RESULT: usize = 4096;

/// Purpose of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Create a container.
    Create,
    /// Create and start a container.
    Run,
    /// Start it.
    Start,
    /// Send a signal.
    Kill,
    /// Delete it.
    Delete,
    /// Set its resources.
    Update,
    /// Run a process.
    Exec {
        /// ID of the process.
        exec_id: String,
    },
    /// Kill the processes that outlived the first one.
    KillRemaining,
    /// Delete what a failed creation left.
    CleanUp,
    /// Wait for the end of a container in a sandbox.
    Wait,
}

/// Command line and streams of a run.
#[derive(Debug)]
pub(crate) struct RuntimeCall {
    /// Command, for example `create`.
    pub(crate) verb: &'static str,
    /// Flags of the command.
    pub(crate) flags: Vec<OsString>,
    /// Arguments: the container ID, and others.
    pub(crate) arguments: Vec<OsString>,
    /// Whether a process of the container inherits the streams, and its ID is written to a file.
    pub(crate) starts_process: bool,
    /// Whether that process has a terminal instead.
    pub(crate) has_terminal: bool,
    /// Stdin, else `/dev/null`.
    pub(crate) stdin: Option<OwnedFd>,
    /// Stdout, else `/dev/null`.
    pub(crate) stdout: Option<OwnedFd>,
    /// Stderr, else `/dev/null` for a process, and a file for the runtime itself.
    pub(crate) stderr: Option<OwnedFd>,
}

impl RuntimeCall {
    pub(crate) fn new(verb: &'static str, flags: &[&str], arguments: &[&str]) -> Self {
        Self {
            verb,
            flags: flags.iter().map(Into::into).collect(),
            arguments: arguments.iter().map(Into::into).collect(),
            starts_process: false,
            has_terminal: false,
            stdin: None,
            stdout: None,
            stderr: None,
        }
    }
}

/// A run of the OCI runtime.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Purpose.
    pub(crate) purpose: Purpose,
    /// Serial number of the container.
    pub(crate) container: u32,
    /// ID of the container.
    pub(crate) container_id: String,
    /// The request that waits for it.
    pub(crate) reply: Option<ReplyTo>,
    /// Process.
    pub(crate) pid: i32,
    /// Time to kill it; `None` after that.
    pub(crate) deadline: Option<Instant>,
    starts_process: bool,
    files: RunFiles,
    console: Option<Console>,
    /// What the runtime writes to stdout, if that is read.
    output: Option<File>,
}

/// An ended run. Its files are removed.
#[derive(Debug)]
pub(crate) struct EndedRun {
    /// Purpose.
    pub(crate) purpose: Purpose,
    /// Serial number of the container.
    pub(crate) container: u32,
    /// ID of the container.
    pub(crate) container_id: String,
    /// The request that waits for it.
    pub(crate) reply: Option<ReplyTo>,
    /// What the run reports, or why it failed.
    pub(crate) outcome: Result<RunResult, CallError>,
}

/// What a run of the OCI runtime reports.
#[derive(Debug, Default)]
pub(crate) struct RunResult {
    /// ID of the process that it started; 0 if it starts none.
    pub(crate) pid: i32,
    /// ID of that process in the sandbox.
    pub(crate) sandbox_pid: Option<i32>,
    /// The terminal of that process.
    pub(crate) terminal: Option<OwnedFd>,
    /// Exit code of the container that it waited for.
    pub(crate) exit_code: i32,
}

/// Container, purpose and serial number of a run.
#[derive(Debug)]
pub(crate) struct RunContext<'a> {
    /// Serial number of the container.
    pub(crate) container: u32,
    /// ID of the container.
    pub(crate) container_id: &'a str,
    /// Directory of the container.
    pub(crate) dir: &'a Path,
    /// Purpose.
    pub(crate) purpose: Purpose,
    /// The request that waits for it.
    pub(crate) reply: Option<ReplyTo>,
    /// Serial number of the run.
    pub(crate) serial: u32,
}

/// Files of a run, in the container's directory.
#[derive(Debug)]
struct RunFiles {
    log: PathBuf,
    stderr: PathBuf,
    pid: PathBuf,
    sandbox_pid: PathBuf,
    console: PathBuf,
}

impl RunFiles {
    fn new(dir: &Path, serial: u32) -> Self {
        let file = |name: &str| dir.join(format!("runtime-{serial}.{name}"));
        Self {
            log: file("log"),
            stderr: file("stderr"),
            pid: file("pid"),
            sandbox_pid: file("sandbox-pid"),
            console: file("console"),
        }
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        for path in [&self.log, &self.stderr, &self.pid, &self.sandbox_pid, &self.console] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Socket that gets a terminal from the runtime.
#[derive(Debug)]
struct Console {
    listener: OwnedFd,
    directory: File,
    name: String,
}

impl Console {
    fn new(dir: &Path, file: &Path) -> io::Result<Self> {
        let directory = File::open(dir)?;
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let listener = listen_in(directory.as_fd(), &name, SocketType::STREAM)?;
        Ok(Self { listener, directory, name })
    }

    /// Returns a path for the runtime. Addresses of sockets have at most 107 bytes, so that it is one of this process.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}/{}", std::process::id(), self.directory.as_raw_fd(), self.name)
    }

    /// Returns the terminal. The runtime has sent it before its end.
    fn receive(&self) -> io::Result<OwnedFd> {
        let connection = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let mut name = [0; 256];
        let received = socket::receive(connection.as_fd(), &mut name)?;
        received.descriptors.into_iter().next().ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }
}

impl Operation {
    /// Starts a run.
    pub(crate) fn start(runtime: &OciRuntime, mut call: RuntimeCall, context: RunContext<'_>) -> io::Result<Self> {
        let files = RunFiles::new(context.dir, context.serial);
        let mut command = Command::new(&runtime.program);
        command.arg("--root").arg(&runtime.root).arg("--log").arg(&files.log).args(["--log-format", "json"]);
        command.args(&runtime.args).arg(call.verb).args(&call.flags);
        if call.starts_process {
            command.arg("--pid-file").arg(&files.pid);
        }
        if runtime.sandbox_container && matches!(context.purpose, Purpose::Exec { .. }) {
            command.arg("--internal-pid-file").arg(&files.sandbox_pid);
        }
        let is_wait = context.purpose == Purpose::Wait;
        let output = is_wait.then(|| in_memory("output", &[])).transpose()?;
        if let Some(output) = &output {
            call.stdout = Some(output.try_clone()?.into());
        }
        let console = call.has_terminal.then(|| Console::new(context.dir, &files.console)).transpose()?;
        if let Some(console) = &console {
            command.arg("--console-socket").arg(console.path());
        }
        command.args(&call.arguments);
        let is_inherited = call.starts_process && !call.has_terminal;
        command.stdin(call.stdin.map_or_else(Stdio::null, Stdio::from));
        command.stdout(call.stdout.map_or_else(Stdio::null, Stdio::from));
        command.stderr(match call.stderr {
            Some(stderr) => Stdio::from(stderr),
            None if is_inherited => Stdio::null(),
            None => Stdio::from(files::create_private(&files.stderr)?),
        });
        let creates = matches!(call.verb, "create" | "run");
        let pid = if creates && runtime.refuses_hybrid_cgroups {
            cgroups::without_v2_of_hybrid(|| process::spawn(&mut command))?
        } else {
            process::spawn(&mut command)?
        };
        let timeout = Duration::from_secs(runtime.timeout_seconds.clamp(1, default_timeout_seconds()));
        Ok(Self {
            purpose: context.purpose,
            container: context.container,
            container_id: context.container_id.to_owned(),
            reply: context.reply,
            pid,
            deadline: (!is_wait).then(|| Instant::now() + timeout),
            starts_process: call.starts_process,
            files,
            console,
            output,
        })
    }

    /// Returns whether it starts a process whose ID is not known yet.
    pub(crate) const fn starts_process(&self) -> bool {
        matches!(self.purpose, Purpose::Create | Purpose::Run | Purpose::Exec { .. })
    }

    /// Kills the runtime if it did not end in time.
    pub(crate) fn enforce_deadline(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            let _ = process::send_signal_to_tree(self.pid, nix::libc::SIGKILL);
        }
    }

    /// Collects the results after the end of the runtime.
    pub(crate) fn finish(self, code: i32) -> EndedRun {
        let outcome = match (code, self.deadline) {
            // The container exists, but its process or terminal is not known.
            (0, _) => self.result().map_err(|error| CallError::new(ErrorCode::System, error.to_string())),
            (_, None) if self.purpose != Purpose::Wait => {
                Err(CallError::new(ErrorCode::Deadline, "the OCI runtime did not end in time"))
            }
            // It was killed, and did not remove what it had created.
            (128.., _) => Err(CallError::new(ErrorCode::System, self.error_text(code))),
            _ => Err(CallError::new(ErrorCode::Runtime, self.error_text(code))),
        };
        let Self { purpose, container, container_id, reply, .. } = self;
        EndedRun { purpose, container, container_id, reply, outcome }
    }

    fn result(&self) -> io::Result<RunResult> {
        if let Some(output) = &self.output {
            return Ok(RunResult { exit_code: exit_status(output)?, ..RunResult::default() });
        }
        if !self.starts_process {
            return Ok(RunResult::default());
        }
        let pid = read_pid(&self.files.pid)?;
        let sandbox_pid = self.files.sandbox_pid.exists().then(|| read_pid(&self.files.sandbox_pid)).transpose()?;
        let terminal = self.console.as_ref().map(Console::receive).transpose();
        let terminal = terminal
            .map_err(|error| io::Error::new(error.kind(), format!("the OCI runtime sent no terminal: {error}")))?;
        Ok(RunResult { pid, sandbox_pid, terminal, exit_code: 0 })
    }

    /// Returns why the runtime failed.
    fn error_text(&self, code: i32) -> String {
        let log = files::read_bounded(&self.files.log, MAX_OUTPUT).unwrap_or_default();
        let stderr = || files::read_bounded(&self.files.stderr, MAX_OUTPUT).unwrap_or_default();
        let text = last_error(&log).unwrap_or_else(|| String::from_utf8_lossy(&stderr()).trim().to_owned());
        if text.is_empty() {
            return format!("the OCI runtime failed with exit code {code}");
        }
        text.chars().take(MAX_TEXT).collect()
    }
}

fn read_pid(path: &Path) -> io::Result<i32> {
    let text = files::read_bounded(path, 32)?;
    let pid = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    pid.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the OCI runtime wrote no process ID"))
}

/// What `runsc wait` writes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WaitResult {
    exit_status: i32,
}

/// Reads the exit code that the runtime has written.
fn exit_status(output: &File) -> io::Result<i32> {
    let mut buffer = [0; MAX_WAIT_RESULT];
    let length = output.read_at(&mut buffer, 0)?;
    let result: WaitResult = serde_json::from_slice(buffer.get(..length).unwrap_or_default())?;
    Ok(result.exit_status)
}

/// Returns a file with a text, without a name.
pub(crate) fn in_memory(name: &str, text: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file)
}

#[derive(Deserialize)]
struct LogEntry {
    level: String,
    msg: String,
}

/// Returns the last error in a log of the runtime. An entry is a line, or several ones (`crun` 1.28).
fn last_error(log: &[u8]) -> Option<String> {
    let mut stream = serde_json::Deserializer::from_slice(log).into_iter::<LogEntry>();
    let mut entries: Vec<LogEntry> = stream.by_ref().map_while(Result::ok).collect();
    // After something else, for example a torn line, entries that are lines.
    let rest = log.get(stream.byte_offset()..).unwrap_or_default();
    entries.extend(rest.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()));
    let is_error = |entry: &LogEntry| matches!(entry.level.as_str(), "error" | "fatal" | "panic");
    entries.into_iter().rfind(|entry| is_error(entry) && !entry.msg.is_empty()).map(|entry| entry.msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_is_the_one_that_wait_wrote() {
        let written = |text: &str| exit_status(&in_memory("output", text.as_bytes()).unwrap());
        assert_eq!(written("{\"id\":\"c\",\"exitStatus\":143}\n").unwrap(), 143);
        for text in ["", "{}", "{\"exitStatus\":1e99}", &" ".repeat(2 * MAX_WAIT_RESULT)] {
            written(text).unwrap_err();
        }
    }

    #[test]
    fn last_error_of_the_log_is_the_text() {
        let log = br#"{"level":"info","msg":"a","time":"t"}
{"level":"error","msg":"unable to start","time":"t"}
{"level":"warning","msg":"b"}
torn"#;
        assert_eq!(last_error(log).as_deref(), Some("unable to start"));
        assert_eq!(last_error(b"text"), None);
        let after = b"torn\n{\"level\":\"info\"}\n{\"level\":\"error\",\"msg\":\"after it\"}\n";
        assert_eq!(last_error(after).as_deref(), Some("after it"));
        let lines = b"{\n  \"msg\": \"not found\",\n  \"level\": \"error\"\n}\n{\n  \"msg\": \"\",\n  \"level\": \"error\"\n}\n";
        assert_eq!(last_error(lines).as_deref(), Some("not found"));
    }
}
