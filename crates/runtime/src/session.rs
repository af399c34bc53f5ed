//! Streaming sessions: exec, attach and port-forward.

use crate::RuntimeError;
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

/// Bidirectional byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// Streams of a session. With a terminal, stderr is part of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionIo {
    /// Whether stdin is attached.
    pub stdin: bool,
    /// Whether stdout is attached.
    pub stdout: bool,
    /// Whether stderr is attached; never with `tty`.
    pub stderr: bool,
    /// Whether the process has a terminal.
    pub tty: bool,
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// Exec or attach session. Dropping it closes its streams, and the runtime may kill the process.
pub struct Session {
    /// Stdin of the process. Shutdown sends EOF.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Stdout of the process.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Stderr of the process, unless it has a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Resize events of the caller's terminal.
    pub resize: Option<mpsc::Sender<TerminalSize>>,
    /// Resolves when the process exits or the attach session ends.
    pub exit: BoxFuture<'static, Result<SessionExit, RuntimeError>>,
}

/// Forwarded connection.
pub struct PortForward {
    /// Data of the connection.
    pub stream: Box<dyn Duplex>,
    /// Resolves when the connection ends, with the runtime's error if it failed.
    pub failure: BoxFuture<'static, Option<String>>,
}

/// Exit of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionExit {
    /// Exit code of the command; 0 for an attach session that was closed regularly.
    Code(i32),
    /// Error text of the runtime.
    Failed(String),
}

/// Output and exit code of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}
