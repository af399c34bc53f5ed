//! Attachments: descriptors of clients that get a container's output, and give its input.

use crate::{
    cri_log::Stream,
    io_source::{Interest, Source},
};
use rustix::io::Errno;
use std::{collections::VecDeque, io};

/// Output that waits for a slow reader, in bytes. A reader that exceeds it is disconnected: waiting for it would stop
/// the container and the other readers, and its log is complete anyway.
const MAX_QUEUE: usize = 1 << 20;

/// Attachment to a container.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Serial number of the container.
    pub(crate) container: u32,
    /// Stdin until its end.
    pub(crate) stdin: Option<Source>,
    /// Stdout until its end.
    pub(crate) stdout: Option<Sink>,
    /// Stderr until its end.
    pub(crate) stderr: Option<Sink>,
}

impl Attachment {
    fn sink(&mut self, stream: Stream) -> &mut Option<Sink> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Sends output. A stream that is closed or too slow ends.
    pub(crate) fn write(&mut self, stream: Stream, data: &[u8]) {
        let sink = self.sink(stream);
        if sink.as_mut().is_some_and(|sink| sink.write(data).is_err()) {
            *sink = None;
        }
    }

    /// Sends the output that waits, after an event.
    pub(crate) fn flush(&mut self, stream: Stream) {
        let sink = self.sink(stream);
        if sink.as_mut().is_some_and(|sink| sink.flush().is_err() || sink.is_complete()) {
            *sink = None;
        }
    }

    /// Ends a stream when its reader has everything, or has gone.
    pub(crate) fn end(&mut self, stream: Stream) {
        let sink = self.sink(stream);
        if let Some(open) = sink {
            open.is_ending = true;
            if open.is_complete() {
                *sink = None;
            }
        }
    }

    /// Returns whether no stream is open.
    pub(crate) const fn is_ended(&self) -> bool {
        self.stdin.is_none() && self.stdout.is_none() && self.stderr.is_none()
    }
}

/// A reader of output.
#[derive(Debug)]
pub(crate) struct Sink {
    source: Source,
    queue: VecDeque<u8>,
    is_ending: bool,
}

impl Sink {
    pub(crate) const fn new(source: Source) -> Self {
        Self { source, queue: VecDeque::new(), is_ending: false }
    }

    fn write(&mut self, mut data: &[u8]) -> io::Result<()> {
        if self.queue.is_empty() {
            let written = write_some(&self.source, data)?;
            data = data.get(written..).unwrap_or_default();
        }
        if data.is_empty() {
            return Ok(());
        }
        if self.queue.len() + data.len() > MAX_QUEUE {
            return Err(Errno::NOBUFS.into());
        }
        self.queue.extend(data);
        self.source.set_interest(Interest::Write)
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// If the reader has gone. Nothing may wait then, and an event without room to write is the end of the other side.
    fn flush(&mut self) -> io::Result<()> {
        if self.queue.is_empty() {
            return Err(Errno::PIPE.into());
        }
        while !self.queue.is_empty() {
            let written = write_some(&self.source, self.queue.as_slices().0)?;
            if written == 0 {
                return Ok(());
            }
            self.queue.drain(..written);
        }
        self.queue = VecDeque::new();
        self.source.set_interest(Interest::Hangup)
    }

    fn is_complete(&self) -> bool {
        self.is_ending && self.queue.is_empty()
    }
}

/// Writes as much as possible without waiting.
pub(crate) fn write_some(target: &Source, data: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
        match rustix::io::write(target, rest) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io_source::{Kind, Token};
    use rustix::event::epoll::{self, CreateFlags};
    use std::{io::Read, rc::Rc};

    fn attachment() -> (Attachment, io::PipeReader) {
        let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
        let (reader, writer) = io::pipe().unwrap();
        let source = Source::new(&epoll, writer.into(), Token(Kind::AttachedStdout, 1), Interest::Hangup).unwrap();
        (Attachment { container: 1, stdin: None, stdout: Some(Sink::new(source)), stderr: None }, reader)
    }

    #[test]
    fn slow_reader_gets_everything_up_to_the_limit() {
        let (mut attachment, mut reader) = attachment();
        let data = vec![b'x'; 64 << 10];
        for _ in 0..10 {
            attachment.write(Stream::Stdout, &data);
        }
        attachment.write(Stream::Stderr, &data);
        attachment.end(Stream::Stdout);
        let mut total = 0;
        while !attachment.is_ended() {
            total += reader.read(&mut vec![0; 64 << 10]).unwrap();
            attachment.flush(Stream::Stdout);
        }
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(total + rest.len(), data.len() * 10);
    }

    #[test]
    fn reader_over_the_limit_is_disconnected() {
        let (mut attachment, _reader) = attachment();
        let data = vec![b'x'; 64 << 10];
        for _ in 0..17 {
            assert!(!attachment.is_ended());
            attachment.write(Stream::Stdout, &data);
        }
        attachment.write(Stream::Stdout, &data);
        assert!(attachment.is_ended());
    }

    #[test]
    fn closed_reader_ends_the_attachment() {
        let (mut first, reader) = attachment();
        drop(reader);
        first.write(Stream::Stdout, b"x");
        assert!(first.is_ended());
        let (mut second, reader) = attachment();
        drop(reader);
        second.flush(Stream::Stdout);
        assert!(second.is_ended());
    }
}
