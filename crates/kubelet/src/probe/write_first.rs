//! A connection on which the request goes out before anything is read.
//!
//! Small servers answer as soon as they have accepted, whatever is asked. hyper takes bytes that come before its request
//! for a fault of the server; Go's client, which writes beside its reading, hardly ever sees them so early.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads nothing until something was written.
pub(super) struct WriteFirst<S> {
    stream: S,
    written: bool,
    reader: Option<Waker>,
}

impl<S> WriteFirst<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, written: false, reader: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteFirst<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.written {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteFirst<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Also a write that fails lets the reader see what there is.
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.written = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
