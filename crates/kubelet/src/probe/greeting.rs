//! A connection whose server says first that it speaks HTTP/2: its settings come before all else (RFC 9113, 3.4).

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

/// What the server has said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Not enough.
    #[default]
    Awaited,
    /// Its settings.
    Settings,
    /// Something else, or that it has nothing to say.
    Other,
}

/// Waits for what the server says first; gives whether it speaks HTTP/2.
pub(super) async fn greeted(mut said: watch::Receiver<Greeting>) -> bool {
    said.wait_for(|said| *said != Greeting::Awaited).await.is_ok_and(|said| *said == Greeting::Settings)
}

/// Tells what the server says first.
pub(super) struct Greeted<S> {
    stream: S,
    head: Vec<u8>,
    told: watch::Sender<Greeting>,
}

impl<S> Greeted<S> {
    /// The length of a frame's header, and where the frame's type stands in it.
    const HEADER: usize = 9;
    const TYPE: usize = 3;
    const SETTINGS: u8 = 4;

    pub(super) fn new(stream: S, told: watch::Sender<Greeting>) -> Self {
        Self { stream, head: Vec::new(), told }
    }

    fn heard(&mut self, new: &[u8]) {
        if self.head.len() >= Self::HEADER {
            return;
        }
        self.head.extend_from_slice(new);
        if self.head.len() >= Self::HEADER {
            let is_settings = self.head.get(Self::TYPE) == Some(&Self::SETTINGS);
            self.told.send_replace(if is_settings { Greeting::Settings } else { Greeting::Other });
        } else if new.is_empty() {
            self.told.send_replace(Greeting::Other);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining());
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if room > 0 {
            self.heard(buf.filled().get(before..).unwrap_or_default());
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
