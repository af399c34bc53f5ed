//! Pipes and terminals of sessions.

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, unix::AsyncFd},
    net::unix::pipe,
};

/// Makes a pipe, and returns the end to read, and the end for the process.
///
/// # Errors
/// When there are no descriptors left.
pub(crate) fn output() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((pipe::Receiver::from_owned_fd(read)?, write))
}

/// Makes a pipe, and returns the end to write, and the end for the process.
///
/// # Errors
/// When there are no descriptors left.
pub(crate) fn input() -> io::Result<(pipe::Sender, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((pipe::Sender::from_owned_fd(write)?, read))
}

/// Master of a terminal. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl Terminal {
    /// # Errors
    /// When the descriptor cannot be polled.
    pub(crate) fn new(master: OwnedFd) -> io::Result<Self> {
        let flags = fcntl_getfl(&master)?;
        fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "an owned descriptor stays open and the same; `register` is unsafe code")]
        let terminal = AsyncFd::new(master)?;
        Ok(Self(Arc::new(terminal)))
    }

    /// Sets the size, in characters.
    pub(crate) fn resize(&self, size: runtime::TerminalSize) -> io::Result<()> {
        let size = rustix::termios::Winsize { ws_col: size.width, ws_row: size.height, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(self.0.get_ref(), size)?)
    }
}

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let unfilled = buf.initialize_unfilled();
            match guard.try_io(|fd| Ok(rustix::io::read(fd.as_fd(), unfilled)?)) {
                Ok(Ok(read)) => {
                    buf.advance(read);
                    return Poll::Ready(Ok(()));
                }
                // A terminal without processes reports EIO: its end.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Poll::Ready(Ok(())),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(result) = guard.try_io(|fd| Ok(rustix::io::write(fd.as_fd(), data)?)) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
