//! The open connections of all listeners, with limits for all peers and for each.

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

/// Minimum interval between log lines of refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum connections from one address. Clients of upstream's library share one; others use some tens.
const PER_SOURCE: usize = 100;

/// The open connections of all listeners that share the process's file descriptors.
#[derive(Debug)]
pub struct Connections {
    limiter: ConnectionLimiter<Arc<Activity>>,
    refused: Mutex<Refused>,
}

/// Refused connections that are not logged yet.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    logged: Option<Instant>,
}

impl Connections {
    /// Creates an empty set with a maximum. A quarter is reserved for local clients, and a remote address gets at most
    /// 100.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let remote = total - total / 4;
        Self::with_limits(ConnectionLimits { total, remote, per_source: PER_SOURCE.min(remote / 4).max(1) })
    }

    /// Creates an empty set with these limits.
    #[must_use]
    pub fn with_limits(limits: ConnectionLimits) -> Self {
        Self { limiter: ConnectionLimiter::new(limits), refused: Mutex::default() }
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.limiter.count()
    }

    /// Admits a connection, or returns `None` when there are too many. If all sources together have too many, an idle
    /// connection of the source with the most is evicted.
    pub(super) fn admit(&self, source: Source, activity: &Arc<Activity>) -> Option<ConnectionPermit<Arc<Activity>>> {
        match self.limiter.admit(source, Arc::clone(activity), |activity| activity.eviction_rank()) {
            Ok((permit, evicted)) => {
                if let Some(evicted) = evicted {
                    evicted.evicted.cancel();
                }
                Some(permit)
            }
            Err(limit) => {
                self.record_refused(source, limit);
                None
            }
        }
    }

    /// Evicts an idle connection, if there is one, because the process has no free file descriptor.
    pub(super) fn evict_any(&self) {
        if let Some(evicted) = self.limiter.evict_any(|activity| activity.eviction_rank()) {
            evicted.evicted.cancel();
        }
    }

    fn record_refused(&self, source: Source, limit: LimitReached) {
        let mut refused = self.refused.lock();
        refused.count = refused.count.saturating_add(1);
        if refused.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            let count = std::mem::take(&mut refused.count);
            refused.logged = Some(Instant::now());
            drop(refused);
            tracing::warn!(?source, ?limit, count, "refused connections above the limit");
        }
    }
}

/// A stream that holds its permit while it is open, also after an upgrade, and records reads.
pub(super) struct AdmittedStream<S> {
    stream: S,
    activity: Arc<Activity>,
    _permit: ConnectionPermit<Arc<Activity>>,
}

impl<S> AdmittedStream<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>, permit: ConnectionPermit<Arc<Activity>>) -> Self {
        Self { stream, activity, _permit: permit }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AdmittedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let old_length = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(ctx, into);
        if into.filled().len() > old_length {
            self.activity.record_read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AdmittedStream<S> {
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
