//! Connection of a client.

use crate::{
    io_source::{Interest, Source},
    protocol::{Answer, CallError, ErrorCode, MAX_MESSAGE, Message},
    socket,
};
use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    os::fd::{AsFd, OwnedFd},
};

/// Messages that wait for a client. One that does not read is disconnected.
const MAX_QUEUE: usize = 256;

/// The request that a reply belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    /// Serial number of the client.
    pub(crate) client: u32,
    /// ID of the request.
    pub(crate) request: u64,
}

/// Connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    source: Source,
    queue: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    /// Whether the versions fit.
    pub(crate) is_greeted: bool,
    /// Whether it gets events.
    pub(crate) is_subscribed: bool,
}

impl Connection {
    pub(crate) const fn new(source: Source) -> Self {
        Self { source, queue: VecDeque::new(), is_greeted: false, is_subscribed: false }
    }

    /// Receives a message.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<socket::Received> {
        socket::receive(self.source.as_fd(), buffer)
    }

    /// Sends a message, or queues it.
    ///
    /// # Errors
    /// If the client has gone, or does not read.
    pub(crate) fn send(&mut self, message: &Message, descriptor: Option<OwnedFd>) -> io::Result<()> {
        if self.queue.len() >= MAX_QUEUE {
            return Err(ErrorKind::OutOfMemory.into());
        }
        self.queue.push_back((encode(message), descriptor));
        self.flush()
    }

    /// Sends the messages that wait.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some((text, descriptor)) = self.queue.front() {
            let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
            match socket::send(self.source.as_fd(), text, &descriptors) {
                Ok(()) => drop(self.queue.pop_front()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.source.set_interest(Interest::Both),
                Err(error) => return Err(error),
            }
        }
        self.queue = VecDeque::new();
        self.source.set_interest(Interest::Read)
    }
}

/// Encodes a message. A result that is too large becomes an error.
fn encode(message: &Message) -> Vec<u8> {
    let text = serde_json::to_vec(message).unwrap_or_default();
    match message {
        Message::Reply { id, .. } if text.is_empty() || text.len() > MAX_MESSAGE => {
            let error = CallError::new(ErrorCode::Limit, "the result is too large");
            serde_json::to_vec(&Message::Reply { id: *id, result: Err::<Answer, _>(error) }).unwrap_or_default()
        }
        _ => text,
    }
}
