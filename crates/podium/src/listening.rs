//! How the API listens: within a share of the process's file descriptors, and at the gateway of the Pods' network for this
//! machine and its Pods alone.

use network::NodePeers;
use server::{Connections, ListenOptions, PeerFilter};
use std::sync::Arc;

/// What a process may have open where the kernel does not say.
const USUAL_LIMIT: u64 = 1024;

/// Raises the limit of open files, and gives connections of the API half of it: the rest is for the kubelet, the store, DNS
/// and streams into containers.
pub(crate) fn options() -> ListenOptions {
    let limit = runtime::raise_file_limit().unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to raise the limit of open files");
        USUAL_LIMIT
    });
    ListenOptions::new(Arc::new(Connections::new(usize::try_from(limit / 2).unwrap_or(usize::MAX))))
}

/// The same at the gateway's address, which other machines could reach through this one.
pub(crate) fn at_gateway(options: &ListenOptions, peers: NodePeers) -> ListenOptions {
    ListenOptions { peers: Some(PeerFilter::new(move |ip| peers.contains(ip))), ..options.clone() }
}
