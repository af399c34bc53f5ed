//! HTTPS listener: HTTP/1.1 and HTTP/2 by ALPN, and client certificates. Connections have a maximum number and
//! timeouts.

mod activity;
mod connection;
mod connections;

pub(crate) use connection::UnknownCertificate;
pub use connections::Connections;

use super::request_handler::RequestHandler;
use activity::Activity;
use api::connection_limiter::Source;
use audit::Peer;
use auth::pki::ServerTls;
use connection::Protocol;
use connections::AdmittedStream;
use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Backoff after a failed accept, for example without a free file descriptor.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Timeouts of a connection. Long-running requests in progress are exempt.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Timeout of the TLS handshake.
    pub handshake: Duration,
    /// Timeout of the head of a request, from its first byte on; for the first request, since the connection was
    /// accepted.
    pub header: Duration,
    /// Idle timeout between requests.
    pub idle: Duration,
    /// Interval of HTTP/2 pings.
    pub ping_interval: Duration,
    /// Timeout of the response to a ping: long enough that a briefly stopped process keeps its watches.
    pub ping_timeout: Duration,
    /// Timeout of a request and its response, unless it is long-running, or from an HTTP/2 client with a certificate.
    pub response: Duration,
}

impl Default for Timeouts {
    /// Upstream's `ReadHeaderTimeout` and `IdleTimeout`; the others are Podium's.
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(60),
            response: Duration::from_secs(120),
        }
    }
}

/// Filter of the peers that a listener serves, by address.
#[derive(Clone)]
pub struct PeerFilter(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl PeerFilter {
    /// Serves the peers whose address satisfies a predicate.
    pub fn new(allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(allows))
    }
}

impl fmt::Debug for PeerFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerFilter")
    }
}

/// Options of a listener.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// The open connections of all listeners.
    pub connections: Arc<Connections>,
    /// Timeouts of connections.
    pub timeouts: Timeouts,
    /// Filter of peers; `None` serves all.
    pub peers: Option<PeerFilter>,
}

impl ListenOptions {
    /// Returns options that serve all peers, within the limits of these connections.
    #[must_use]
    pub fn new(connections: Arc<Connections>) -> Self {
        Self { connections, timeouts: Timeouts::default(), peers: None }
    }
}

/// Accepts connections and serves them until `stop` is cancelled. Then open connections are closed.
pub(crate) async fn accept(
    handler: Arc<dyn RequestHandler>,
    listener: TcpListener,
    tls: ServerTls,
    options: ListenOptions,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.config));
    let protocol = Arc::new(Protocol { handler, tls, acceptor, timeouts: options.timeouts });
    // Dropping the set ends the open connections. Checking `stop` at each poll of a connection would cost as much as a
    // small response.
    let mut connections = JoinSet::new();
    let mut failures = Failures::default();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match stream {
            Ok((stream, peer)) => {
                failures = Failures::default();
                if let Some((stream, activity, is_local)) = admit(&options, stream, peer) {
                    let protocol = Arc::clone(&protocol);
                    connections.spawn(async move {
                        let evicted = activity.evicted.clone();
                        let serve = protocol.serve(stream, Peer(peer), is_local, activity);
                        evicted.run_until_cancelled(serve).await;
                    });
                }
            }
            Err(error) => {
                options.connections.evict_any();
                tokio::time::sleep(failures.record(&error)).await;
            }
        }
    }
}

/// Admits a connection, unless the filter excludes its peer or there are too many.
fn admit(
    options: &ListenOptions,
    stream: TcpStream,
    peer: SocketAddr,
) -> Option<(AdmittedStream<TcpStream>, Arc<Activity>, bool)> {
    if options.peers.as_ref().is_some_and(|peers| !(peers.0)(peer.ip().to_canonical())) {
        tracing::debug!(%peer, "refused a connection from an excluded peer");
        return None;
    }
    let source = Source::of(peer.ip(), stream.local_addr().ok().map(|local| local.ip()));
    let activity = Activity::new();
    let permit = options.connections.admit(source, &activity)?;
    let _ = stream.set_nodelay(true);
    Some((AdmittedStream::new(stream, Arc::clone(&activity), permit), activity, source == Source::Local))
}

/// Consecutive failures to accept a connection.
#[derive(Default)]
struct Failures(u32);

impl Failures {
    /// Logs a failure if their number is a power of two. Returns the backoff.
    fn record(&mut self, error: &io::Error) -> Duration {
        let wait = ACCEPT_BACKOFF.saturating_mul(1 << self.0.min(5)).min(MAX_ACCEPT_BACKOFF);
        self.0 = self.0.saturating_add(1);
        if self.0.is_power_of_two() {
            tracing::warn!(%error, failures = self.0, "failed to accept a connection");
        }
        wait
    }
}
