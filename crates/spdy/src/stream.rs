//! One byte stream of a session.

use crate::{
    Headers,
    frame::{Out, reset},
};
use bytes::Bytes;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
};
use tokio_util::sync::PollSender;

/// Largest piece of data in one frame.
const MAX_DATA: usize = 32 << 10;

/// A byte stream both ways. Shutting it down ends its own direction only; dropping it resets it.
#[derive(Debug)]
pub struct Stream {
    id: u32,
    headers: Headers,
    incoming: mpsc::Receiver<Bytes>,
    /// What was received and not read yet.
    left: Bytes,
    outgoing: PollSender<Out>,
    /// For what must not wait for room: replies and resets.
    urgent: mpsc::UnboundedSender<Out>,
    finished: bool,
}

impl Stream {
    pub(crate) fn new(
        id: u32,
        headers: Headers,
        incoming: mpsc::Receiver<Bytes>,
        outgoing: mpsc::Sender<Out>,
        urgent: mpsc::UnboundedSender<Out>,
    ) -> Self {
        let outgoing = PollSender::new(outgoing);
        Self { id, headers, incoming, left: Bytes::new(), outgoing, urgent, finished: false }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// What its opener said about it; names in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Accepts a stream that the other end opened: only now does it send data.
    pub fn accept(&self) {
        let _ = self.urgent.send(Out::Reply { stream: self.id });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.urgent.send(Out::Reset { stream: self.id, code: reset::CANCEL });
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection is closed")
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left.is_empty() {
            match ready!(self.incoming.poll_recv(cx)) {
                Some(bytes) => self.left = bytes,
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = self.left.len().min(buf.remaining());
        buf.put_slice(&self.left.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.finished {
            return Poll::Ready(Err(gone()));
        }
        ready!(self.outgoing.poll_reserve(cx)).map_err(|_| gone())?;
        let n = buf.len().min(MAX_DATA);
        let frame = Out::Data { stream: self.id, bytes: Bytes::copy_from_slice(&buf[..n]) };
        self.outgoing.send_item(frame).map_err(|_| gone())?;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The session's writer flushes whenever it has nothing more to write.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.finished {
            // Through the same queue as the data, so that it comes after it.
            ready!(self.outgoing.poll_reserve(cx)).map_err(|_| gone())?;
            let frame = Out::Fin { stream: self.id };
            self.outgoing.send_item(frame).map_err(|_| gone())?;
            self.finished = true;
        }
        Poll::Ready(Ok(()))
    }
}
