//! A container: its streams, log and state.

use crate::{
    attachment::write_some,
    config::{ContainerOptions, Exit},
    connection::ReplyTo,
    cri_log::{LineSplitter, LogFile, Stream},
    io_source::{Interest, Source},
    protocol::{ContainerState, Status},
};
use rustix::{io::Errno, termios::Winsize};
use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Instant,
};

/// Result of a read without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// Number of bytes.
    Data(usize),
    /// Nothing now.
    Nothing,
    /// The end of the stream.
    End,
}

/// Reads once without waiting.
pub(crate) fn read_some(source: &Source, buffer: &mut [u8]) -> Read {
    loop {
        match rustix::io::read(source, &mut *buffer) {
            Ok(0) => return Read::End,
            Ok(count) => return Read::Data(count),
            Err(Errno::AGAIN) => return Read::Nothing,
            Err(Errno::INTR) => {}
            // A terminal without processes reports EIO.
            Err(_) => return Read::End,
        }
    }
}

/// An output stream of a container.
#[derive(Debug)]
pub(crate) struct Output {
    /// Pipe, or the terminal's master.
    pub(crate) source: Source,
    /// Lines of the log.
    pub(crate) lines: LineSplitter,
}

/// End of a container's first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessExit {
    /// Exit code; 128 + n after signal n.
    pub(crate) code: i32,
    /// Time in nanoseconds since 1970.
    pub(crate) finished_at: i64,
}

/// Exit that could not be stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnstoredExit {
    /// Exit.
    pub(crate) exit: Exit,
    /// Time of the next attempt.
    pub(crate) next_attempt: Instant,
    /// When it is reported though it is not stored.
    pub(crate) report_at: Instant,
}

/// Input of a container that waits for the process to read.
#[derive(Debug, Default)]
pub(crate) struct PendingInput {
    text: Vec<u8>,
    closes: bool,
}

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    /// Container ID.
    pub(crate) id: String,
    /// Its directory.
    pub(crate) dir: PathBuf,
    /// Options.
    pub(crate) options: ContainerOptions,
    /// Status.
    pub(crate) status: Status,
    /// First process, until it is reaped.
    pub(crate) pid: Option<i32>,
    /// Log.
    pub(crate) log: LogFile,
    /// Stdout, or the terminal.
    pub(crate) stdout: Option<Output>,
    /// Stderr.
    pub(crate) stderr: Option<Output>,
    /// Write end of the pipe of stdin.
    pub(crate) stdin: Option<Source>,
    /// The other side of the terminal. While it is open, reads from the terminal do not fail when no process has it
    /// open.
    pub(crate) terminal: Option<OwnedFd>,
    pending_input: PendingInput,
    /// Whether the OCI runtime starts it.
    pub(crate) is_starting: bool,
    /// Whether the OCI runtime reports the end of its first process, which is no process of this machine.
    pub(crate) is_waited_for: bool,
    /// The end of the first process before it is reported.
    pub(crate) process_exit: Option<ProcessExit>,
    /// Exit after everything was written.
    pub(crate) exit: Option<Exit>,
    /// Exit that could not be stored yet.
    pub(crate) unstored: Option<UnstoredExit>,
    /// Whether a client deleted it. It exists until its exit is stored.
    pub(crate) is_deleted: bool,
    /// The request to delete it, when the OCI runtime has done that, and the first process has not ended yet.
    pub(crate) deletion: Option<Option<ReplyTo>>,
}

impl Container {
    pub(crate) fn new(id: &str, dir: &Path, options: ContainerOptions) -> io::Result<Self> {
        let log = LogFile::open(options.log_path.clone())?;
        Ok(Self {
            id: id.to_owned(),
            dir: dir.to_owned(),
            options,
            status: Status::Creating,
            pid: None,
            log,
            stdout: None,
            stderr: None,
            stdin: None,
            terminal: None,
            pending_input: PendingInput::default(),
            is_starting: false,
            is_waited_for: false,
            process_exit: None,
            exit: None,
            unstored: None,
            is_deleted: false,
            deletion: None,
        })
    }

    /// Returns whether the first process has begun: its end is reported before the container is forgotten.
    pub(crate) const fn has_begun(&self) -> bool {
        self.pid.is_some() || self.is_waited_for || self.process_exit.is_some()
    }

    /// Returns the bundle.
    pub(crate) fn bundle(&self) -> &Path {
        if self.options.bundle.as_os_str().is_empty() { &self.dir } else { &self.options.bundle }
    }

    pub(crate) fn state(&self) -> ContainerState {
        ContainerState {
            id: self.id.clone(),
            status: self.status,
            pid: self.pid,
            exit: self.exit.clone(),
            lost_log_bytes: self.log.lost(),
        }
    }

    pub(crate) const fn output(&mut self, stream: Stream) -> &mut Option<Output> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Reads output once.
    pub(crate) fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> Read {
        self.output(stream).as_ref().map_or(Read::End, |output| read_some(&output.source, buffer))
    }

    /// Writes output to the log.
    pub(crate) fn write_log(&mut self, stream: Stream, data: &[u8], batch: &mut Vec<u8>) {
        let output = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        if let Some(output) = output {
            output.lines.push(data, &mut self.log, batch);
        }
    }

    /// Closes an output stream, and writes the rest of its last line.
    pub(crate) fn close_output(&mut self, stream: Stream, batch: &mut Vec<u8>) {
        if let Some(mut output) = self.output(stream).take() {
            output.lines.finish(&mut self.log, batch);
        }
    }

    /// Returns whether input can be given to the process.
    pub(crate) const fn has_stdin(&self) -> bool {
        self.stdin.is_some() || (self.terminal.is_some() && self.stdout.is_some())
    }

    /// Returns whether input waits for the process.
    pub(crate) const fn has_pending_input(&self) -> bool {
        !self.pending_input.text.is_empty()
    }

    /// Gives input to the process. What it does not read yet waits.
    pub(crate) fn write_stdin(&mut self, data: &[u8]) {
        self.pending_input.text.extend_from_slice(data);
        self.flush_stdin();
    }

    /// Gives the input that waits to the process.
    pub(crate) fn flush_stdin(&mut self) {
        let (target, idle) = match (&mut self.stdin, &mut self.stdout) {
            (Some(pipe), _) => (pipe, Interest::Hangup),
            (None, Some(terminal)) if self.terminal.is_some() => (&mut terminal.source, Interest::Read),
            _ => {
                self.pending_input = PendingInput::default();
                return;
            }
        };
        let text = &mut self.pending_input.text;
        let result = write_some(target, text).and_then(|written| {
            text.drain(..written);
            if text.is_empty() {
                *text = Vec::new();
                return target.set_interest(idle);
            }
            target.set_interest(if idle == Interest::Read { Interest::Both } else { Interest::Write })
        });
        let is_closed = self.pending_input.closes && !self.has_pending_input();
        if result.is_err() || is_closed {
            self.drop_stdin();
        }
    }

    /// Closes stdin after the input that waits. A terminal has no end of input.
    pub(crate) fn close_stdin(&mut self) {
        if self.has_pending_input() && self.stdin.is_some() {
            self.pending_input.closes = true;
        } else {
            self.stdin = None;
        }
    }

    /// Closes stdin at once: the process closed it, or ended.
    pub(crate) fn drop_stdin(&mut self) {
        self.stdin = None;
        self.pending_input = PendingInput::default();
    }

    /// Sets the size of the terminal.
    pub(crate) fn resize(&self, width: u16, height: u16) -> io::Result<()> {
        let (Some(_), Some(output)) = (&self.terminal, &self.stdout) else {
            return Err(Errno::NOTTY.into());
        };
        let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&output.source, size)?)
    }
}
