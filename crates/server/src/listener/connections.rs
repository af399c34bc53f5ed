//! The open connections of all listeners, within bounds: in all and per peer.

use super::activity::Activity;
use api::connection_limiter::{ConnectionLimiter, ConnectionLimits, ConnectionPermit, LimitReached, Source};
use parking_lot::Mutex;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// How often refused connections are logged at most.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Connections from one address at most; upstream's clients share one connection, others use some tens.
const PER_SOURCE: usize = 100;

/// The open connections of all listeners that share the process's file descriptors.
#[derive(Debug)]
pub struct Connections {
    slots: ConnectionLimiter<Arc<Activity>>,
    refused: Mutex<Refused>,
}

/// Connections that were refused, and not logged yet.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    logged: Option<Instant>,
}

impl Connections {
    /// No connections yet, and so many at most. A quarter is for this machine alone, and one address of another gets 100.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let remote = total - total / 4;
        Self::with_bounds(ConnectionLimits { total, remote, per_source: PER_SOURCE.min(remote / 4).max(1) })
    }

    /// No connections yet, within these bounds.
    #[must_use]
    pub fn with_bounds(bounds: ConnectionLimits) -> Self {
        Self { slots: ConnectionLimiter::new(bounds), refused: Mutex::default() }
    }

    /// How many connections are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.slots.count()
    }

    /// Takes a connection in; `None` when there are too many. Where all sources together have too many, an idle connection
    /// of the source with the most makes room.
    pub(super) fn admit(&self, source: Source, activity: &Arc<Activity>) -> Option<ConnectionPermit<Arc<Activity>>> {
        match self.slots.admit(source, Arc::clone(activity), |activity| activity.eviction_rank()) {
            Ok((slot, evicted)) => {
                if let Some(evicted) = evicted {
                    evicted.evicted.cancel();
                }
                Some(slot)
            }
            Err(full) => {
                self.note_refused(source, full);
                None
            }
        }
    }

    /// Closes an idle connection, if there is one: the process has no file descriptor left.
    pub(super) fn evict_any(&self) {
        if let Some(evicted) = self.slots.evict_any(|activity| activity.eviction_rank()) {
            evicted.evicted.cancel();
        }
    }

    fn note_refused(&self, source: Source, bound: LimitReached) {
        let mut refused = self.refused.lock();
        refused.count = refused.count.saturating_add(1);
        if refused.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            let count = std::mem::take(&mut refused.count);
            refused.logged = Some(Instant::now());
            drop(refused);
            tracing::warn!(?source, ?bound, count, "refused connections: too many are open");
        }
    }
}

/// A stream that holds its slot for as long as it is open, also when it was upgraded, and reports what arrives.
pub(super) struct Admitted<S> {
    stream: S,
    activity: Arc<Activity>,
    _slot: ConnectionPermit<Arc<Activity>>,
}

impl<S> Admitted<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>, slot: ConnectionPermit<Arc<Activity>>) -> Self {
        Self { stream, activity, _slot: slot }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Admitted<S> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(ctx, into);
        if into.filled().len() > before {
            self.activity.note_read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Admitted<S> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(ctx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(ctx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(ctx)
    }
}
