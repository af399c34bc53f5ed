//! A connection on which the request goes out before anything is read, and of which the beginning of the answer is kept.
//!
//! Small servers answer as soon as they have accepted, whatever is asked. hyper takes bytes that come before its request
//! for a fault of the server; Go's client, which writes beside its reading, hardly ever sees them so early.

use parking_lot::Mutex;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much of an answer's beginning is kept: what is said of a line longer than this is for nobody's use.
const KEPT: usize = 4096;

/// The first bytes of an answer.
pub(super) type Beginning = Arc<Mutex<Vec<u8>>>;

/// Reads nothing until something was written.
pub(super) struct WriteFirst<S> {
    stream: S,
    written: bool,
    reader: Option<Waker>,
    beginning: Beginning,
}

impl<S> WriteFirst<S> {
    pub(super) fn new(stream: S, beginning: Beginning) -> Self {
        Self { stream, written: false, reader: None, beginning }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteFirst<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.written {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            let (mut kept, new) = (self.beginning.lock(), buf.filled().get(before..).unwrap_or_default());
            let room = KEPT.saturating_sub(kept.len()).min(new.len());
            kept.extend_from_slice(new.get(..room).unwrap_or_default());
            return Poll::Ready(Ok(()));
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
