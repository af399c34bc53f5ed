//! Streams into a container: what exec, attach and port-forward hand to their caller.

use crate::RuntimeError;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// A byte stream both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// Which streams a session has. With a terminal, stderr is part of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionIo {
    /// Whether the caller writes.
    pub stdin: bool,
    /// Whether the caller reads output.
    pub stdout: bool,
    /// Whether the caller reads errors; never with `tty`.
    pub stderr: bool,
    /// Whether there is a terminal.
    pub tty: bool,
}

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// An exec or attach in progress. Dropping it closes its streams; the runtime ends what it may.
pub struct Session {
    /// To the process; shutting it down is its end of input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// From the process.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// From the process, unless it has a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// New sizes of the caller's terminal.
    pub resize: Option<mpsc::Sender<TerminalSize>>,
    /// Ends when the process (or the attachment) does.
    pub exit: BoxFuture<'static, Result<SessionExit, RuntimeError>>,
}

/// One forwarded connection.
pub struct PortForward {
    /// To and from the port; it ends when the connection does.
    pub stream: Box<dyn Duplex>,
    /// Ends with the connection: why it failed, in the runtime's words, if it did.
    pub failure: BoxFuture<'static, Option<String>>,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionExit {
    /// The command ended with this code (an attachment: 0 when it was closed in order).
    Code(i32),
    /// The runtime could not start or keep it; its own words.
    Failed(String),
}

/// What a command said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}
