//! Coalesces small writes of one HTTP/2 connection: otherwise each response would be a TLS record and a system call.
//!
//! A flush is deferred to the connection's next poll, which it requests at once. Other responses that are ready are written
//! by then. Without other work, the next poll follows without delay.

use bytes::{Buf, BytesMut};
use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum size of the write buffer, in bytes.
const MAX_BUFFER: usize = 64 << 10;
/// Size from which a write bypasses an empty buffer, in bytes.
const LARGE_WRITE: usize = 8 << 10;
/// Capacity up to which the empty buffer is kept, in bytes.
const KEPT_CAPACITY: usize = 4 << 10;

/// Number of the connection's current poll.
#[derive(Clone, Default)]
pub(crate) struct PollCounter(Arc<AtomicU64>);

impl PollCounter {
    /// Runs a connection's future, and counts its polls.
    pub(crate) async fn counted<T>(self, connection: impl Future<Output = T>) -> T {
        let mut connection = pin!(connection);
        poll_fn(|ctx| {
            self.0.fetch_add(1, Relaxed);
            connection.as_mut().poll(ctx)
        })
        .await
    }
}

/// A stream that coalesces the small writes of one poll.
pub(crate) struct CoalescingStream<S> {
    stream: S,
    polls: PollCounter,
    /// Whether writes are coalesced at all.
    is_enabled: bool,
    buffer: BytesMut,
    /// The poll in which a flush was deferred to the next one.
    deferred_in: Option<u64>,
}

impl<S: AsyncWrite + Unpin> CoalescingStream<S> {
    pub(crate) fn new(stream: S, polls: PollCounter, is_enabled: bool) -> Self {
        Self { stream, polls, is_enabled, buffer: BytesMut::new(), deferred_in: None }
    }

    /// Writes the buffer.
    fn drain(&mut self, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffer.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(ctx, &self.buffer))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffer.advance(written);
        }
        self.deferred_in = None;
        if self.buffer.capacity() > KEPT_CAPACITY {
            self.buffer = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Frees buffer space for a write; returns whether it bypasses the buffer, which is empty then.
    fn bypasses_buffer(&mut self, additional: usize, ctx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if !self.is_enabled {
            return Poll::Ready(Ok(true));
        }
        if self.buffer.len() + additional > MAX_BUFFER {
            ready!(self.drain(ctx))?;
        }
        Poll::Ready(Ok(self.buffer.is_empty() && additional >= LARGE_WRITE))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CoalescingStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(ctx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescingStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if ready!(self.bypasses_buffer(data.len(), ctx))? {
            return Pin::new(&mut self.stream).poll_write(ctx, data);
        }
        self.buffer.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let size = data.iter().map(|part| part.len()).sum();
        if ready!(self.bypasses_buffer(size, ctx))? {
            return Pin::new(&mut self.stream).poll_write_vectored(ctx, data);
        }
        data.iter().for_each(|part| self.buffer.extend_from_slice(part));
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.buffer.is_empty() {
            let poll = self.polls.0.load(Relaxed);
            match self.deferred_in {
                None => {
                    self.deferred_in = Some(poll);
                    ctx.waker().wake_by_ref();
                    return Poll::Ready(Ok(()));
                }
                // The next poll was requested already.
                Some(since) if since == poll => return Poll::Ready(Ok(())),
                Some(_) => ready!(self.drain(ctx))?,
            }
        }
        Pin::new(&mut self.stream).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(ctx))?;
        Pin::new(&mut self.stream).poll_shutdown(ctx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// Records the size of each write.
    struct Counted(DuplexStream, Vec<usize>);

    impl AsyncWrite for Counted {
        fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
            let written = ready!(Pin::new(&mut self.0).poll_write(ctx, data))?;
            self.1.push(written);
            Poll::Ready(Ok(written))
        }

        fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(ctx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(ctx)
        }
    }

    /// Writes and flushes pieces of these sizes, yields once and flushes; compares the sizes of the actual writes.
    async fn check(pieces: &[usize], expected: &[usize]) {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let polls = PollCounter::default();
        let mut gather = CoalescingStream::new(Counted(near, Vec::new()), polls.clone(), true);
        let work = async {
            for size in pieces {
                gather.write_all(&vec![b'x'; *size]).await.unwrap();
                gather.flush().await.unwrap();
            }
            tokio::task::yield_now().await;
            gather.flush().await.unwrap();
        };
        polls.counted(work).await;
        assert_eq!(gather.stream.1, expected, "{pieces:?}");
        let all: usize = pieces.iter().sum();
        let mut read = vec![0; all];
        far.read_exact(&mut read).await.unwrap();
    }

    #[tokio::test]
    async fn writes_of_one_poll_are_coalesced() {
        check(&[10], &[10]).await;
        check(&[10, 20, 30], &[60]).await;
        check(&[LARGE_WRITE], &[LARGE_WRITE]).await;
        check(&[10, LARGE_WRITE], &[10 + LARGE_WRITE]).await;
        check(&[10, MAX_BUFFER, 20], &[10, MAX_BUFFER, 20]).await;
        check(&[], &[]).await;
    }

    #[tokio::test]
    async fn shutdown_writes_the_buffer() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut gather = CoalescingStream::new(near, PollCounter::default(), true);
        gather.write_all(b"last").await.unwrap();
        gather.shutdown().await.unwrap();
        let mut read = String::new();
        far.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "last");
    }

    #[tokio::test]
    async fn deferred_flush_wakes_its_connection() {
        let (near, mut far) = tokio::io::duplex(64);
        let polls = PollCounter::default();
        let mut gather = CoalescingStream::new(near, polls.clone(), true);
        let mut is_written = false;
        let connection = poll_fn(move |ctx| {
            if !std::mem::replace(&mut is_written, true) {
                assert!(Pin::new(&mut gather).poll_write(ctx, b"x").is_ready());
            }
            let _ = Pin::new(&mut gather).poll_flush(ctx);
            Poll::<()>::Pending
        });
        let task = tokio::spawn(polls.counted(connection));
        let mut read = [0; 1];
        far.read_exact(&mut read).await.unwrap();
        task.abort();
    }
}
