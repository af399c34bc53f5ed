//! Connection limits of the API server's listeners, and the peer filter of the one at the Pod gateway.

use network::NodePeers;
use server::{Connections, ListenOptions, PeerFilter};
use std::sync::Arc;

/// Assumed limit of open files if it cannot be read.
const DEFAULT_FILE_LIMIT: u64 = 1024;

/// Raises the limit of open files, and reserves half of it for API connections: the rest is for the kubelet, the store, DNS
/// and streams into containers.
pub(crate) fn with_fd_limit() -> ListenOptions {
    let limit = runtime::raise_file_limit().unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to raise the limit of open files");
        DEFAULT_FILE_LIMIT
    });
    ListenOptions::new(Arc::new(Connections::new(usize::try_from(limit / 2).unwrap_or(usize::MAX))))
}

/// Returns the options of the listener at the Pod gateway. Other machines could route to it, so only this node and its Pods
/// are accepted.
pub(crate) fn for_gateway(options: &ListenOptions, peers: NodePeers) -> ListenOptions {
    ListenOptions { peers: Some(PeerFilter::new(move |ip| peers.contains(ip))), ..options.clone() }
}
