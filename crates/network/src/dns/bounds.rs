//! How much the name server does at a time, in all and for one client.

use api::connection_table::{Bounds, Slots, Source};
use nix::sys::resource::{Resource, getrlimit};
use std::net::IpAddr;
use tokio_util::sync::CancellationToken;

/// Forwarded queries at a time (CoreDNS' `max_concurrent`, as kubeadm sets it), and their share of the process's files.
const QUERIES: usize = 1000;
const QUERIES_SHARE: u64 = 8;
/// TCP connections at a time, and their share.
const CONNECTIONS: usize = 256;
const CONNECTIONS_SHARE: u64 = 16;
/// The share of one client.
const CLIENT_SHARE: usize = 5;

/// Queries or connections in progress. Where there are too many, the oldest of the client with the most ends.
pub(super) type InProgress = Slots<CancellationToken>;

pub(super) fn queries() -> InProgress {
    Slots::new(bounds(QUERIES, QUERIES_SHARE))
}

pub(super) fn connections() -> InProgress {
    Slots::new(bounds(CONNECTIONS, CONNECTIONS_SHARE))
}

fn bounds(most: usize, share: u64) -> Bounds {
    let files =
        getrlimit(Resource::RLIMIT_NOFILE).map_or(most, |(soft, _)| usize::try_from(soft / share).unwrap_or(most));
    of(files.min(most))
}

/// Bounds of so many in all.
pub(super) fn of(total: usize) -> Bounds {
    Bounds { total, remote: total, per_source: (total / CLIENT_SHARE).max(1) }
}

/// Does something for a client, unless there is too much to do; `None` when it was not done or not done to its end.
pub(super) async fn within<T>(in_progress: &InProgress, client: IpAddr, work: impl Future<Output = T>) -> Option<T> {
    let ended = CancellationToken::new();
    // The oldest one comes first.
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
