//! A stream that delays reads until the first write, and records the beginning of the response for error messages.
//!
//! Some servers respond as soon as they accept a connection. hyper treats bytes that arrive before the request as a
//! server error. Go's client writes and reads concurrently, and accepts such a response.

use parking_lot::Mutex;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Limit of the recorded beginning in bytes.
const MAX_RECORDED: usize = 4096;

/// The first bytes of a response.
pub(super) type ResponseHead = Arc<Mutex<Vec<u8>>>;

/// Stream whose reads are pending until the first write.
pub(super) struct WriteFirst<S> {
    stream: S,
    written: bool,
    reader: Option<Waker>,
    response_head: ResponseHead,
}

impl<S> WriteFirst<S> {
    pub(super) fn new(stream: S, response_head: ResponseHead) -> Self {
        Self { stream, written: false, reader: None, response_head }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteFirst<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.written {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            let (mut kept, new) = (self.response_head.lock(), buf.filled().get(before..).unwrap_or_default());
            let room = MAX_RECORDED.saturating_sub(kept.len()).min(new.len());
            kept.extend_from_slice(new.get(..room).unwrap_or_default());
            return Poll::Ready(Ok(()));
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteFirst<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // A failed write also enables reads, so that the reader gets the response or the error.
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
