//! In-process connections from the API server to the kubelet.

use futures::{FutureExt, future::BoxFuture};
use kubelet::Kubelet;
use server::{DialedStream, NodeDialer};
use std::{io, sync::OnceLock};
use tokio::runtime::Handle;

/// Buffer size of a connection, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Dials the kubelet of this process, and no other node.
pub(crate) struct KubeletDialer {
    node: String,
    kubelet: OnceLock<Kubelet>,
    /// Runtime of the kubelet's request handlers.
    node_runtime: Handle,
}

impl KubeletDialer {
    pub(crate) fn new(node: &str, node_runtime: Handle) -> Self {
        Self { node: node.to_owned(), kubelet: OnceLock::new(), node_runtime }
    }

    /// Sets the kubelet to dial. Further calls have no effect.
    pub(crate) fn connect(&self, kubelet: Kubelet) {
        let _ = self.kubelet.set(kubelet);
    }
}

impl NodeDialer for KubeletDialer {
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>> {
        async move {
            if node != self.node {
                let message = format!("the kubelet of node {node:?} does not run in this process");
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            }
            let kubelet = self.kubelet.get().ok_or(io::ErrorKind::NotConnected)?.clone();
            let (client_end, kubelet_end) = tokio::io::duplex(BUFFER_BYTES);
            self.node_runtime.spawn(async move { kubelet.serve_stream(kubelet_end).await });
            Ok(Box::new(client_end) as Box<dyn DialedStream>)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dial_of_an_unknown_node_returns_not_found() {
        let dialer = KubeletDialer::new("n", Handle::current());
        let kind = async |node| dialer.dial(node).await.map(drop).unwrap_err().kind();
        assert_eq!(kind("other").await, io::ErrorKind::NotFound);
        assert_eq!(kind("").await, io::ErrorKind::NotFound);
        // The node is known, and its kubelet is not connected yet.
        assert_eq!(kind("n").await, io::ErrorKind::NotConnected);
    }
}
