//! Output and input of containers: pipes, logs and attachments.

use crate::{
    attachment::{Attachment, Sink},
    container::{Read, read_some},
    cri_log::Stream,
    io_source::{Interest, Kind, Source, Token},
    keeper::Keeper,
    protocol::{CallError, ErrorCode},
};
use std::os::fd::OwnedFd;

/// Maximum number of attachments, including those that wait for a slow reader after the end of a container.
const MAX_ATTACHMENTS: usize = 32;
/// Input that is read at once.
const INPUT_CHUNK: usize = 16 << 10;
/// Number of reads after the end of a container. Processes of other containers may have the pipe, and write forever.
const MAX_LAST_READS: usize = 1024;

impl Keeper {
    /// Reads output of a container once, logs it, and sends it to the attachments.
    pub(crate) fn read_output(&mut self, serial: u32, stream: Stream) -> Read {
        let Some(container) = self.containers.get_mut(&serial) else { return Read::End };
        let read = container.read(stream, &mut self.buffers.input);
        match read {
            Read::Data(count) => {
                let data = self.buffers.input.get(..count).unwrap_or_default();
                container.write_log(stream, data, &mut self.buffers.log);
                for attachment in self.attachments.values_mut().filter(|a| a.container == serial) {
                    attachment.write(stream, data);
                }
                self.attachments.retain(|_, attachment| !attachment.is_ended());
            }
            Read::Nothing => {}
            Read::End => self.close_output(serial, stream),
        }
        read
    }

    /// Reads everything that an ended container has written, and closes its streams.
    pub(crate) fn drain_output(&mut self, serial: u32) {
        if let Some(container) = self.containers.get_mut(&serial) {
            // Reads from a terminal end when the keeper has closed its other side, too.
            container.terminal = None;
            container.drop_stdin();
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            for _ in 0..MAX_LAST_READS {
                if !matches!(self.read_output(serial, stream), Read::Data(_)) {
                    break;
                }
            }
            self.close_output(serial, stream);
        }
        for attachment in self.attachments.values_mut().filter(|a| a.container == serial) {
            attachment.stdin = None;
        }
        self.attachments.retain(|_, attachment| !attachment.is_ended());
    }

    fn close_output(&mut self, serial: u32, stream: Stream) {
        if let Some(container) = self.containers.get_mut(&serial) {
            container.close_output(stream, &mut self.buffers.log);
        }
        for attachment in self.attachments.values_mut().filter(|a| a.container == serial) {
            attachment.end(stream);
        }
        self.attachments.retain(|_, attachment| !attachment.is_ended());
    }

    /// Sends output that waits for a slow reader.
    pub(crate) fn flush_attached(&mut self, serial: u32, stream: Stream) {
        if let Some(attachment) = self.attachments.get_mut(&serial) {
            attachment.flush(stream);
            if attachment.is_ended() {
                self.attachments.remove(&serial);
            }
        }
    }

    /// Attaches descriptors to a container.
    pub(crate) fn attach(
        &mut self,
        container: u32,
        [stdin, stdout, stderr]: [Option<OwnedFd>; 3],
    ) -> Result<(), CallError> {
        if self.attachments.len() >= MAX_ATTACHMENTS {
            return Err(CallError::new(ErrorCode::Limit, "too many attachments"));
        }
        let serial = self.next_serial();
        let source = |descriptor: Option<OwnedFd>, kind, interest| {
            let source = descriptor.map(|fd| Source::new(&self.epoll, fd, Token(kind, serial), interest)).transpose();
            source.map_err(|error| CallError::new(ErrorCode::Invalid, format!("not a pipe or socket: {error}")))
        };
        let mut attachment = Attachment {
            container,
            stdin: source(stdin, Kind::AttachedStdin, Interest::Read)?,
            stdout: source(stdout, Kind::AttachedStdout, Interest::Hangup)?.map(Sink::new),
            stderr: source(stderr, Kind::AttachedStderr, Interest::Hangup)?.map(Sink::new),
        };
        let Some(container) = self.containers.get_mut(&container) else { return Ok(()) };
        if !container.has_stdin() {
            attachment.stdin = None;
        }
        // A stream that has ended already, or that a terminal does not have.
        for stream in [Stream::Stdout, Stream::Stderr] {
            if container.output(stream).is_none() {
                attachment.end(stream);
            }
        }
        if !attachment.is_ended() {
            self.attachments.insert(serial, attachment);
            self.resume_attached_stdin();
        }
        Ok(())
    }

    /// Reads input from an attachment.
    pub(crate) fn read_attached_stdin(&mut self, serial: u32) {
        let Some(attachment) = self.attachments.get_mut(&serial) else { return };
        let (number, Some(source)) = (attachment.container, &attachment.stdin) else { return };
        let Some(container) = self.containers.get_mut(&number) else { return };
        if container.has_pending_input() {
            return;
        }
        let buffer = self.buffers.input.get_mut(..INPUT_CHUNK).unwrap_or_default();
        match read_some(source, buffer) {
            Read::Data(count) if container.has_stdin() => {
                container.write_stdin(self.buffers.input.get(..count).unwrap_or_default());
            }
            Read::Nothing => return,
            Read::Data(_) => attachment.stdin = None,
            Read::End => {
                attachment.stdin = None;
                if container.options.stdin_once {
                    container.close_stdin();
                }
            }
        }
        if attachment.is_ended() {
            self.attachments.remove(&serial);
        }
        self.resume_attached_stdin();
    }

    /// Gives input that waits to a container.
    pub(crate) fn flush_stdin(&mut self, serial: u32) {
        if let Some(container) = self.containers.get_mut(&serial) {
            container.flush_stdin();
            self.resume_attached_stdin();
        }
    }

    /// Closes stdin of a container that does not read it any more.
    pub(crate) fn drop_stdin(&mut self, serial: u32) {
        if let Some(container) = self.containers.get_mut(&serial) {
            container.drop_stdin();
            self.resume_attached_stdin();
        }
    }

    /// Reads from attachments whose container has read everything, and from no others. Closes what nobody reads.
    pub(crate) fn resume_attached_stdin(&mut self) {
        for attachment in self.attachments.values_mut() {
            let Some(stdin) = &mut attachment.stdin else { continue };
            let container = self.containers.get(&attachment.container);
            let Some(container) = container.filter(|container| container.has_stdin()) else {
                attachment.stdin = None;
                continue;
            };
            let interest = if container.has_pending_input() { Interest::Paused } else { Interest::Read };
            if stdin.set_interest(interest).is_err() {
                attachment.stdin = None;
            }
        }
        self.attachments.retain(|_, attachment| !attachment.is_ended());
    }
}
