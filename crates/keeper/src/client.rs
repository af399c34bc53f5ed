//! Client of a keeper.

mod connection;

use crate::{
    KEEPER_NAME,
    config::CONTAINERS,
    protocol::{
        Answer, Call, CallError, ContainerState, ErrorCode, Event, ExecCall, Hello, MAX_MESSAGE, OLDEST_VERSION,
        PROTOCOL_VERSION,
    },
    socket,
    startup::READY,
};
use connection::Connection;
use serde_json::value::RawValue;
use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};
use tokio::{io::AsyncReadExt, process::Command, sync::mpsc, time::timeout};

/// Deadline of calls that run the OCI runtime. The keeper kills it after 2 min.
const RUNTIME_DEADLINE: Duration = Duration::from_secs(130);
/// Deadline of other calls. The keeper executes them at once, but may wait for the disk.
const DEADLINE: Duration = Duration::from_secs(30);
/// Maximum length of the error text of a keeper that does not start.
const MAX_START_TEXT: u64 = 4096;

/// Error of a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The keeper did not start.
    #[error("failed to start the keeper: {0}")]
    Start(String),
    /// No keeper can be connected to.
    #[error("failed to connect to the keeper: {0}")]
    Connect(io::Error),
    /// The connection ended: the keeper was killed, or was shut down.
    #[error("the keeper has ended")]
    Disconnected,
    /// There was no reply in time.
    #[error("the keeper did not reply in time")]
    Deadline,
    /// The request is too large.
    #[error("the request exceeds {MAX_MESSAGE} bytes")]
    TooLarge,
    /// The keeper speaks a version that this client does not know.
    #[error("the keeper speaks version {0}, Podium {OLDEST_VERSION} to {PROTOCOL_VERSION}")]
    Version(u32),
    /// The reply does not belong to the call.
    #[error("the keeper sent an unexpected reply")]
    UnexpectedReply,
    /// Error of the keeper or of the OCI runtime.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Error {
    /// Returns the kind of an error of the keeper.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Call(error) => Some(error.code),
            _ => None,
        }
    }

    /// Returns whether keeper and Podium speak different versions of the protocol. The text has both.
    #[must_use]
    pub fn is_version(&self) -> bool {
        matches!(self, Self::Version(_)) || self.code() == Some(ErrorCode::Version)
    }
}

/// Streams of a process of `exec`. They are passed on: the keeper does not read or write them.
#[derive(Debug)]
pub enum ExecStreams {
    /// A terminal, which [`Exec`] has.
    Terminal,
    /// Descriptors; `None` for `/dev/null`.
    Descriptors {
        /// Stdin.
        stdin: Option<OwnedFd>,
        /// Stdout.
        stdout: Option<OwnedFd>,
        /// Stderr.
        stderr: Option<OwnedFd>,
    },
}

/// A started process of `exec`.
#[derive(Debug)]
pub struct Exec {
    /// Process ID, in the namespace of the keeper.
    pub pid: i32,
    /// The terminal's master. The process gets SIGHUP when it is closed.
    pub terminal: Option<OwnedFd>,
}

/// Streams to attach: pipes or sockets. The keeper makes them non-blocking, so that they are not to be shared.
#[derive(Debug, Default)]
pub struct AttachStreams {
    /// Input, until its end.
    pub stdin: Option<OwnedFd>,
    /// Stdout, or the terminal. It is closed at the end of the container, and when its reader is 1 MiB behind.
    pub stdout: Option<OwnedFd>,
    /// Stderr.
    pub stderr: Option<OwnedFd>,
}

/// Events of a keeper.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Event>);

impl Events {
    /// Returns the next event, or `None` when the keeper has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

/// Connection to a keeper. Clones share it. Calls can be concurrent, and have deadlines.
#[derive(Debug, Clone)]
pub struct Client {
    connection: Arc<Connection>,
    hello: Arc<Hello>,
}

impl Client {
    /// Starts a keeper and connects to it. `program` calls [`crate::run_if_named`]; `keeper.json` is in the sandbox's
    /// directory.
    ///
    /// # Errors
    /// If the keeper does not start, for example because another one runs.
    pub async fn spawn(program: &Path, sandbox: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Start(error.to_string());
        let mut command = Command::new(program);
        command.arg0(KEEPER_NAME).arg(sandbox);
        // Of the allocator of `podium`: its metadata of the 1 GiB that it would reserve take 150 KB of each keeper.
        command.env("MIMALLOC_ARENA_RESERVE", "64MiB");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take();
        let read = async {
            let mut text = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(MAX_START_TEXT).read_to_end(&mut text).await?;
            }
            Ok(text)
        };
        let text = match timeout(DEADLINE, read).await {
            Ok(text) => text.map_err(failed),
            Err(_) => {
                let _ = child.start_kill();
                Err(Error::Deadline)
            }
        };
        // Reaps it.
        tokio::spawn(async move { child.wait().await });
        let text = text?;
        if text != READY {
            return Err(Error::Start(String::from_utf8_lossy(&text).trim().to_owned()));
        }
        Self::connect(sandbox).await
    }

    /// Connects to the keeper of a sandbox.
    ///
    /// # Errors
    /// If none runs, or its version is not supported.
    pub async fn connect(sandbox: &Path) -> Result<Self, Error> {
        let directory = File::open(sandbox).map_err(Error::Connect)?;
        let socket = socket::connect(directory.as_fd()).map_err(Error::Connect)?;
        let connection = Connection::new(socket).map_err(Error::Connect)?;
        let hello = Call::Hello { version: PROTOCOL_VERSION };
        match connection.call(hello, Vec::new(), DEADLINE).await?.0 {
            Answer::Hello(hello) if hello.version < OLDEST_VERSION => Err(Error::Version(hello.version)),
            Answer::Hello(hello) => Ok(Self { connection: Arc::new(connection), hello: Arc::new(hello) }),
            _ => Err(Error::UnexpectedReply),
        }
    }

    /// Returns whether the connection has not ended.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    /// Returns process and namespaces of the keeper.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the directory of a container, in which `container.json` must be before its creation.
    #[must_use]
    pub fn container_dir(sandbox: &Path, id: &str) -> PathBuf {
        sandbox.join(CONTAINERS).join(id)
    }

    async fn run(&self, call: Call, deadline: Duration) -> Result<(), Error> {
        match self.connection.call(call, Vec::new(), deadline).await?.0 {
            Answer::Done => Ok(()),
            _ => Err(Error::UnexpectedReply),
        }
    }

    /// Creates a container, and returns its first process.
    ///
    /// # Errors
    /// If its files are invalid, or the OCI runtime fails. Then nothing is left.
    pub async fn create_container(&self, id: &str) -> Result<i32, Error> {
        let call = Call::CreateContainer { id: id.to_owned(), start: false };
        match self.connection.call(call, Vec::new(), RUNTIME_DEADLINE).await?.0 {
            Answer::Process(pid) => Ok(pid),
            _ => Err(Error::UnexpectedReply),
        }
    }

    /// Creates and starts a container, with one run of the OCI runtime: two take 10 ms longer. Returns its first process.
    ///
    /// # Errors
    /// As of [`Client::create_container`].
    pub async fn run_container(&self, id: &str) -> Result<i32, Error> {
        let call = Call::CreateContainer { id: id.to_owned(), start: true };
        match self.connection.call(call, Vec::new(), RUNTIME_DEADLINE).await?.0 {
            Answer::Started(pid) => Ok(pid),
            // An older keeper has only created it.
            Answer::Process(pid) => self.start_container(id).await.map(|()| pid),
            _ => Err(Error::UnexpectedReply),
        }
    }

    /// Starts a created container.
    ///
    /// # Errors
    /// If it is not created, or the OCI runtime fails.
    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        self.run(Call::StartContainer { id: id.to_owned() }, RUNTIME_DEADLINE).await
    }

    /// Sends a signal to the first process of a container, or to all of its processes.
    ///
    /// # Errors
    /// [`ErrorCode::WrongState`] if it is stopped.
    pub async fn kill_container(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        self.run(Call::KillContainer { id: id.to_owned(), signal, all }, RUNTIME_DEADLINE).await
    }

    /// Deletes a container. One that is running is killed with `force`, and refused without.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if it does not exist.
    pub async fn delete_container(&self, id: &str, force: bool) -> Result<(), Error> {
        self.run(Call::DeleteContainer { id: id.to_owned(), force }, RUNTIME_DEADLINE).await
    }

    /// Runs a process in a container. `process` is a file with OCI's `process`. [`Event::ExecExited`] reports its end.
    ///
    /// # Errors
    /// If the container is not running, the ID is in use, or the OCI runtime fails.
    pub async fn exec(&self, id: &str, exec_id: &str, process: &Path, streams: ExecStreams) -> Result<Exec, Error> {
        let mut call = ExecCall {
            id: id.to_owned(),
            exec_id: exec_id.to_owned(),
            process: process.to_owned(),
            terminal: true,
            stdin: false,
            stdout: false,
            stderr: false,
        };
        let mut descriptors = Vec::new();
        if let ExecStreams::Descriptors { stdin, stdout, stderr } = streams {
            call.terminal = false;
            (call.stdin, call.stdout, call.stderr) = (stdin.is_some(), stdout.is_some(), stderr.is_some());
            descriptors = [stdin, stdout, stderr].into_iter().flatten().collect();
        }
        match self.connection.call(Call::Exec(call), descriptors, RUNTIME_DEADLINE).await? {
            (Answer::Process(pid), terminal) => Ok(Exec { pid, terminal }),
            _ => Err(Error::UnexpectedReply),
        }
    }

    /// Sends a signal to a process of [`Client::exec`].
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if it has ended.
    pub async fn kill_exec(&self, id: &str, exec_id: &str, signal: i32) -> Result<(), Error> {
        let (id, exec_id) = (id.to_owned(), exec_id.to_owned());
        self.run(Call::KillExec { id, exec_id, signal }, DEADLINE).await
    }

    /// Attaches streams to a created or running container.
    ///
    /// # Errors
    /// If it is stopped, or there are 32 attachments.
    pub async fn attach(&self, id: &str, streams: AttachStreams) -> Result<(), Error> {
        let AttachStreams { stdin, stdout, stderr } = streams;
        let call = Call::Attach {
            id: id.to_owned(),
            stdin: stdin.is_some(),
            stdout: stdout.is_some(),
            stderr: stderr.is_some(),
        };
        let descriptors = [stdin, stdout, stderr].into_iter().flatten().collect();
        self.connection.call(call, descriptors, DEADLINE).await.map(|_| ())
    }

    /// Sets the size of a container's terminal, in characters.
    ///
    /// # Errors
    /// If it has none.
    pub async fn resize_terminal(&self, id: &str, width: u16, height: u16) -> Result<(), Error> {
        self.run(Call::ResizeTerminal { id: id.to_owned(), width, height }, DEADLINE).await
    }

    /// Closes stdin of a container.
    ///
    /// # Errors
    /// If it is stopped.
    pub async fn close_stdin(&self, id: &str) -> Result<(), Error> {
        self.run(Call::CloseStdin { id: id.to_owned() }, DEADLINE).await
    }

    /// Reopens the log of a container after its rotation.
    ///
    /// # Errors
    /// If the file cannot be opened. The old one is used then.
    pub async fn reopen_log(&self, id: &str) -> Result<(), Error> {
        self.run(Call::ReopenLog { id: id.to_owned() }, DEADLINE).await
    }

    /// Sets the resources of a container: OCI's `linux.resources`.
    ///
    /// # Errors
    /// If it is stopped, or the OCI runtime fails.
    pub async fn update_resources(&self, id: &str, resources: Box<RawValue>) -> Result<(), Error> {
        self.run(Call::UpdateResources { id: id.to_owned(), resources }, RUNTIME_DEADLINE).await
    }

    /// Begins to receive events. A list after it has what happened before.
    ///
    /// # Errors
    /// If the keeper has ended.
    pub async fn subscribe(&self) -> Result<Events, Error> {
        let events = self.connection.receive_events();
        self.run(Call::Subscribe, DEADLINE).await?;
        Ok(Events(events))
    }

    /// Lists all containers of the keeper.
    ///
    /// # Errors
    /// If the keeper has ended.
    pub async fn list_containers(&self) -> Result<Vec<ContainerState>, Error> {
        match self.connection.call(Call::ListContainers, Vec::new(), DEADLINE).await?.0 {
            Answer::Containers(containers) => Ok(containers),
            _ => Err(Error::UnexpectedReply),
        }
    }

    /// Ends the keeper, and the namespaces of the Pod with it.
    ///
    /// # Errors
    /// [`ErrorCode::WrongState`] if it has containers.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.run(Call::Shutdown, DEADLINE).await
    }
}
