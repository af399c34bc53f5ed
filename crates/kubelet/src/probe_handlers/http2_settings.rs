//! Detection of HTTP/2 servers: the first frame of the server is a SETTINGS frame (RFC 9113, section 3.4).

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

/// First frame of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FirstFrame {
    /// Not complete yet.
    #[default]
    Pending,
    /// A SETTINGS frame.
    Settings,
    /// Something else, or the connection was closed.
    Other,
}

/// Waits for the first frame of the server; returns whether the server speaks HTTP/2.
pub(super) async fn wait_for_settings(mut frame: watch::Receiver<FirstFrame>) -> bool {
    frame.wait_for(|frame| *frame != FirstFrame::Pending).await.is_ok_and(|frame| *frame == FirstFrame::Settings)
}

/// Stream that reports the first frame of the server.
pub(super) struct FirstFrameReporter<S> {
    stream: S,
    head: Vec<u8>,
    first_frame: watch::Sender<FirstFrame>,
}

impl<S> FirstFrameReporter<S> {
    /// Length of a frame header, and the offset of the frame type in it.
    const HEADER: usize = 9;
    const TYPE: usize = 3;
    const SETTINGS: u8 = 4;

    pub(super) fn new(stream: S, first_frame: watch::Sender<FirstFrame>) -> Self {
        Self { stream, head: Vec::new(), first_frame }
    }

    fn inspect(&mut self, new: &[u8]) {
        if self.head.len() >= Self::HEADER {
            return;
        }
        self.head.extend_from_slice(new);
        if self.head.len() >= Self::HEADER {
            let is_settings = self.head.get(Self::TYPE) == Some(&Self::SETTINGS);
            self.first_frame.send_replace(if is_settings { FirstFrame::Settings } else { FirstFrame::Other });
        } else if new.is_empty() {
            self.first_frame.send_replace(FirstFrame::Other);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstFrameReporter<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining());
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if room > 0 {
            self.inspect(buf.filled().get(before..).unwrap_or_default());
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstFrameReporter<S> {
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
