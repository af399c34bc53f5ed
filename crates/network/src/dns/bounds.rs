//! Limits of concurrent work of the DNS server, in total and per client.

use api::connection_limiter::{ConnectionLimiter, ConnectionLimits, Source};
use nix::sys::resource::{Resource, getrlimit};
use std::net::IpAddr;
use tokio_util::sync::CancellationToken;

/// Maximum of concurrent forwarded queries (CoreDNS' `max_concurrent`, as kubeadm sets it), and their share of the
/// open file limit.
const QUERIES: usize = 1000;
const QUERIES_SHARE: u64 = 8;
/// Maximum of concurrent TCP connections, and their share.
const CONNECTIONS: usize = 256;
const CONNECTIONS_SHARE: u64 = 16;
/// Share of one client.
const CLIENT_SHARE: usize = 5;

/// Queries or connections in progress. Beyond the limit, the oldest one of the client with the most is cancelled.
pub(super) type InProgress = ConnectionLimiter<CancellationToken>;

pub(super) fn queries() -> InProgress {
    ConnectionLimiter::new(bounds(QUERIES, QUERIES_SHARE))
}

pub(super) fn connections() -> InProgress {
    ConnectionLimiter::new(bounds(CONNECTIONS, CONNECTIONS_SHARE))
}

fn bounds(maximum: usize, share: u64) -> ConnectionLimits {
    let files = getrlimit(Resource::RLIMIT_NOFILE)
        .map_or(maximum, |(soft, _)| usize::try_from(soft / share).unwrap_or(maximum));
    limits(files.min(maximum))
}

/// Returns limits for a total.
pub(super) fn limits(total: usize) -> ConnectionLimits {
    ConnectionLimits { total, remote: total, per_source: (total / CLIENT_SHARE).max(1) }
}

/// Runs `work` for a client within the limits; `None` if it was rejected or cancelled.
pub(super) async fn within<T>(in_progress: &InProgress, client: IpAddr, work: impl Future<Output = T>) -> Option<T> {
    let ended = CancellationToken::new();
    // Sorted by age.
    let admitted = in_progress.admit(Source::of(client, None), ended.clone(), |_| Some(()));
    let Ok((_slot, evicted)) = admitted else {
        tracing::debug!(%client, "refused a query or connection: too many are in progress");
        return None;
    };
    if let Some(evicted) = evicted {
        evicted.cancel();
    }
    ended.run_until_cancelled(work).await
}
