//! The connections to the node's own port, within bounds.

use api::connection_table::{Bounds, Slot, Slots, Source};
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

/// Connections at a time, and their share of the process's files.
const CONNECTIONS: usize = 1024;
const SHARE: u64 = 16;
/// Connections of one other machine or Pod at a time.
const PER_SOURCE: usize = 32;

/// The connections that are open.
pub(super) struct Connections(Slots<()>);

impl Connections {
    pub(super) fn new() -> Self {
        let files = getrlimit(Resource::RLIMIT_NOFILE)
            .map_or(CONNECTIONS, |(soft, _)| usize::try_from(soft / SHARE).unwrap_or(CONNECTIONS));
        let total = files.min(CONNECTIONS);
        let remote = total - total / 4;
        Self::with_bounds(Bounds { total, remote, per_source: PER_SOURCE.min(remote / 4).max(1) })
    }

    pub(super) fn with_bounds(bounds: Bounds) -> Self {
        Self(Slots::new(bounds))
    }

    /// Takes a connection in; `None` when there are too many.
    pub(super) fn admit(&self, stream: TcpStream, peer: SocketAddr) -> Option<Held> {
        let own = stream.local_addr().ok().map(|own| own.ip());
        match self.0.admit(Source::of(peer.ip(), own), (), |()| None::<()>) {
            Ok((slot, _)) => Some(Held { stream, _slot: slot }),
            Err(bound) => {
                tracing::debug!(%peer, ?bound, "refused a connection to the node: too many are open");
                None
            }
        }
    }
}

/// A stream that holds its place for as long as it is open, also when it was upgraded.
pub(super) struct Held {
    stream: TcpStream,
    _slot: Slot<()>,
}

impl AsyncRead for Held {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(ctx, into)
    }
}

impl AsyncWrite for Held {
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
