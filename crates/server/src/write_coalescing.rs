//! Answers that are ready at the same time leave together: over HTTP/2 each of them would be a record and a system call of
//! its own otherwise.
//!
//! What is written waits until its connection has its next turn, which it asks for at once: what else is ready by then has
//! had one, and has written too. A connection that is alone goes on without delay.

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

/// How much is gathered, in bytes.
const MOST: usize = 64 << 10;
/// What is not copied to be gathered when nothing is, in bytes.
const LARGE: usize = 8 << 10;
/// So much room is kept for the next time, in bytes.
const KEPT: usize = 4 << 10;

/// Which turn a connection has.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<AtomicU64>);

impl Turns {
    /// Carries out what serves a connection, and counts its turns.
    pub(crate) async fn counted<T>(self, connection: impl Future<Output = T>) -> T {
        let mut connection = pin!(connection);
        poll_fn(|ctx| {
            self.0.fetch_add(1, Relaxed);
            connection.as_mut().poll(ctx)
        })
        .await
    }
}

/// A stream on which small writes of one turn become one.
pub(crate) struct Gather<S> {
    stream: S,
    turns: Turns,
    /// Whether it does that; else all goes on as it comes.
    gathers: bool,
    gathered: BytesMut,
    /// The turn in which a flush was put off to the next one.
    put_off: Option<u64>,
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    pub(crate) fn new(stream: S, turns: Turns, gathers: bool) -> Self {
        Self { stream, turns, gathers, gathered: BytesMut::new(), put_off: None }
    }

    /// Writes what was gathered.
    fn drain(&mut self, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(ctx, &self.gathered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gathered.advance(written);
        }
        self.put_off = None;
        if self.gathered.capacity() > KEPT {
            self.gathered = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Makes room for so much more; says whether it is to be written past what is gathered, which is nothing then.
    fn is_past(&mut self, more: usize, ctx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if !self.gathers {
            return Poll::Ready(Ok(true));
        }
        if self.gathered.len() + more > MOST {
            ready!(self.drain(ctx))?;
        }
        Poll::Ready(Ok(self.gathered.is_empty() && more >= LARGE))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(ctx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if ready!(self.is_past(data.len(), ctx))? {
            return Pin::new(&mut self.stream).poll_write(ctx, data);
        }
        self.gathered.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let size = data.iter().map(|part| part.len()).sum();
        if ready!(self.is_past(size, ctx))? {
            return Pin::new(&mut self.stream).poll_write_vectored(ctx, data);
        }
        data.iter().for_each(|part| self.gathered.extend_from_slice(part));
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gathered.is_empty() {
            let turn = self.turns.0.load(Relaxed);
            match self.put_off {
                None => {
                    self.put_off = Some(turn);
                    ctx.waker().wake_by_ref();
                    return Poll::Ready(Ok(()));
                }
                // Its next turn comes.
                Some(since) if since == turn => return Poll::Ready(Ok(())),
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

    /// Counts what is written at once.
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

    /// Writes pieces of these sizes, each with a flush, then gives way once, and flushes; gives what was written at once.
    async fn check(pieces: &[usize], expected: &[usize]) {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let turns = Turns::default();
        let mut gather = Gather::new(Counted(near, Vec::new()), turns.clone(), true);
        let work = async {
            for size in pieces {
                gather.write_all(&vec![b'x'; *size]).await.unwrap();
                gather.flush().await.unwrap();
            }
            tokio::task::yield_now().await;
            gather.flush().await.unwrap();
        };
        turns.counted(work).await;
        assert_eq!(gather.stream.1, expected, "{pieces:?}");
        let all: usize = pieces.iter().sum();
        let mut read = vec![0; all];
        far.read_exact(&mut read).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_written_in_one_turn_leaves_together_in_the_next() {
        check(&[10], &[10]).await;
        check(&[10, 20, 30], &[60]).await;
        check(&[LARGE], &[LARGE]).await;
        check(&[10, LARGE], &[10 + LARGE]).await;
        check(&[10, MOST, 20], &[10, MOST, 20]).await;
        check(&[], &[]).await;
    }

    #[tokio::test]
    async fn what_is_gathered_when_a_connection_ends_is_written() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut gather = Gather::new(near, Turns::default(), true);
        gather.write_all(b"last").await.unwrap();
        gather.shutdown().await.unwrap();
        let mut read = String::new();
        far.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "last");
    }

    #[tokio::test]
    async fn a_flush_that_was_put_off_wakes_its_connection() {
        let (near, mut far) = tokio::io::duplex(64);
        let turns = Turns::default();
        let mut gather = Gather::new(near, turns.clone(), true);
        let mut is_written = false;
        let connection = poll_fn(move |ctx| {
            if !std::mem::replace(&mut is_written, true) {
                assert!(Pin::new(&mut gather).poll_write(ctx, b"x").is_ready());
            }
            let _ = Pin::new(&mut gather).poll_flush(ctx);
            Poll::<()>::Pending
        });
        let task = tokio::spawn(turns.counted(connection));
        let mut read = [0; 1];
        far.read_exact(&mut read).await.unwrap();
        task.abort();
    }
}
