//! Limits on connections to the kubelet's HTTPS port.

use api::connection_limiter::{ConnectionLimiter, ConnectionLimits, ConnectionPermit, Source};
use nix::sys::resource::{Resource, getrlimit};
use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Limit of concurrent connections.
const MAX_CONNECTIONS: usize = 1024;
/// Divisor of `RLIMIT_NOFILE` that limits the connections further.
const FILE_LIMIT_DIVISOR: u64 = 16;
/// Limit of concurrent connections from one remote address.
const PER_SOURCE: usize = 32;

/// Open connections.
pub(super) struct Connections(ConnectionLimiter<()>);

impl Connections {
    pub(super) fn new() -> Self {
        let files = getrlimit(Resource::RLIMIT_NOFILE)
            .map_or(MAX_CONNECTIONS, |(soft, _)| usize::try_from(soft / FILE_LIMIT_DIVISOR).unwrap_or(MAX_CONNECTIONS));
        let total = files.min(MAX_CONNECTIONS);
        let remote = total - total / 4;
        Self::with_bounds(ConnectionLimits { total, remote, per_source: PER_SOURCE.min(remote / 4).max(1) })
    }

    pub(super) fn with_bounds(bounds: ConnectionLimits) -> Self {
        Self(ConnectionLimiter::new(bounds))
    }

    /// Admits a connection; `None` if a limit is reached.
    pub(super) fn admit(&self, stream: TcpStream, peer: SocketAddr) -> Option<LimitedStream> {
        let local = stream.local_addr().ok().map(|address| address.ip());
        match self.0.admit(Source::of(peer.ip(), local), (), |()| None::<()>) {
            Ok((slot, _)) => Some(LimitedStream { stream, _slot: slot }),
            Err(bound) => {
                tracing::debug!(%peer, ?bound, "refused a connection to the node: too many are open");
                None
            }
        }
    }
}

/// Stream that holds its connection slot until it is dropped, also after an upgrade.
pub(super) struct LimitedStream {
    stream: TcpStream,
    _slot: ConnectionPermit<()>,
}

impl AsyncRead for LimitedStream {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(ctx, into)
    }
}

impl AsyncWrite for LimitedStream {
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
