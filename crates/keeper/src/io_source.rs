//! Descriptors that the event loop waits for.

use rustix::event::epoll::{self, EventData, EventFlags};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

/// Kind of a descriptor, and with it the handler of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Socket of the keeper.
    Listener,
    /// Ends of child processes.
    Signals,
    /// Connection of a client.
    Client,
    /// Stdout or terminal of a container.
    Stdout,
    /// Stderr of a container.
    Stderr,
    /// Stdin of a container.
    Stdin,
    /// Stdin of an attachment.
    AttachedStdin,
    /// Stdout of an attachment.
    AttachedStdout,
    /// Stderr of an attachment.
    AttachedStderr,
}

const KINDS: [Kind; 9] = [
    Kind::Listener,
    Kind::Signals,
    Kind::Client,
    Kind::Stdout,
    Kind::Stderr,
    Kind::Stdin,
    Kind::AttachedStdin,
    Kind::AttachedStdout,
    Kind::AttachedStderr,
];

/// Kind of a descriptor, and serial number of its owner. A number is used once, so that an event of an owner that no
/// longer exists has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) Kind, pub(crate) u32);

impl Token {
    /// Encodes the token for an event.
    pub(crate) fn data(self) -> EventData {
        let kind = KINDS.iter().position(|kind| *kind == self.0).unwrap_or_default();
        EventData::new_u64((kind as u64) << 32 | u64::from(self.1))
    }

    /// Decodes the data of an event.
    pub(crate) fn from_data(data: EventData) -> Option<Self> {
        let data = data.u64();
        let kind = usize::try_from(data >> 32).ok().and_then(|kind| KINDS.get(kind))?;
        Some(Self(*kind, u32::try_from(data & u64::from(u32::MAX)).ok()?))
    }
}

/// Events of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// None. Unlike [`Interest::Hangup`], the end of the other side is not reported either.
    Paused,
    /// The end of the other side, which all following ones include.
    Hangup,
    /// Readable.
    Read,
    /// Writable.
    Write,
    /// Readable or writable.
    Both,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Paused | Self::Hangup => EventFlags::empty(),
            Self::Read => EventFlags::IN,
            Self::Write => EventFlags::OUT,
            Self::Both => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// A descriptor of the event loop, which is removed from it when it is dropped: closing is not enough, because another
/// process may have the same open file.
#[derive(Debug)]
pub(crate) struct Source {
    descriptor: OwnedFd,
    epoll: Rc<OwnedFd>,
    token: Token,
    interest: Interest,
}

impl Source {
    /// Adds a descriptor, which becomes non-blocking.
    ///
    /// # Errors
    /// If it is neither a pipe, a socket, a terminal, nor another file that can be waited for.
    pub(crate) fn new(epoll: &Rc<OwnedFd>, descriptor: OwnedFd, token: Token, interest: Interest) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        if interest != Interest::Paused {
            epoll::add(&**epoll, &descriptor, token.data(), interest.flags())?;
        }
        Ok(Self { descriptor, epoll: Rc::clone(epoll), token, interest })
    }

    /// Changes the events of interest.
    pub(crate) fn set_interest(&mut self, interest: Interest) -> io::Result<()> {
        if interest == self.interest {
            return Ok(());
        }
        match (self.interest, interest) {
            (_, Interest::Paused) => epoll::delete(&*self.epoll, &self.descriptor)?,
            (Interest::Paused, _) => {
                epoll::add(&*self.epoll, &self.descriptor, self.token.data(), interest.flags())?;
            }
            _ => epoll::modify(&*self.epoll, &self.descriptor, self.token.data(), interest.flags())?,
        }
        self.interest = interest;
        Ok(())
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.interest != Interest::Paused {
            let _ = epoll::delete(&*self.epoll, &self.descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        for kind in KINDS {
            for serial in [0, 7, u32::MAX] {
                assert_eq!(Token::from_data(Token(kind, serial).data()), Some(Token(kind, serial)));
            }
        }
        assert_eq!(Token::from_data(EventData::new_u64(u64::MAX)), None);
    }
}
