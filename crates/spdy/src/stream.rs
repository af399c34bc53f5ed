//! Byte stream of a session.

use crate::{
    Headers,
    frame::{OutgoingFrame, reset},
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

/// Maximum payload of a data frame.
const MAX_PAYLOAD: usize = 32 << 10;

/// Bidirectional byte stream. Shutdown closes only the write side; dropping the stream resets it.
#[derive(Debug)]
pub struct Stream {
    id: u32,
    headers: Headers,
    incoming: mpsc::Receiver<Bytes>,
    /// Received data that is not read yet.
    unread: Bytes,
    outgoing: PollSender<OutgoingFrame>,
    /// Replies and resets, which are not subject to flow control.
    control_frames: mpsc::UnboundedSender<OutgoingFrame>,
    finished: bool,
}

impl Stream {
    pub(crate) fn new(
        id: u32,
        headers: Headers,
        incoming: mpsc::Receiver<Bytes>,
        outgoing: mpsc::Sender<OutgoingFrame>,
        control_frames: mpsc::UnboundedSender<OutgoingFrame>,
    ) -> Self {
        let outgoing = PollSender::new(outgoing);
        Self { id, headers, incoming, unread: Bytes::new(), outgoing, control_frames, finished: false }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns a header of SYN_STREAM. Names are in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Accepts a stream opened by the peer, which sends no data before SYN_REPLY.
    pub fn accept(&self) {
        let _ = self.control_frames.send(OutgoingFrame::Reply { stream: self.id });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.control_frames.send(OutgoingFrame::Reset { stream: self.id, code: reset::CANCEL });
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection is closed")
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            match ready!(self.incoming.poll_recv(cx)) {
                Some(bytes) => self.unread = bytes,
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.finished {
            return Poll::Ready(Err(closed()));
        }
        ready!(self.outgoing.poll_reserve(cx)).map_err(|_| closed())?;
        let n = buf.len().min(MAX_PAYLOAD);
        let frame = OutgoingFrame::Data { stream: self.id, bytes: Bytes::copy_from_slice(&buf[..n]) };
        self.outgoing.send_item(frame).map_err(|_| closed())?;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The session's writer flushes when its queues are empty.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.finished {
            // FIN uses the data queue, so that it is sent after the data.
            ready!(self.outgoing.poll_reserve(cx)).map_err(|_| closed())?;
            let frame = OutgoingFrame::Fin { stream: self.id };
            self.outgoing.send_item(frame).map_err(|_| closed())?;
            self.finished = true;
        }
        Poll::Ready(Ok(()))
    }
}
