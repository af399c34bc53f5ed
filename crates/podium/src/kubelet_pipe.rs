//! The way from the API server to the kubelet of the same process.

use futures::{FutureExt, future::BoxFuture};
use kubelet::Kubelet;
use server::{DialedStream, NodeDialer};
use std::{io, sync::OnceLock};
use tokio::runtime::Handle;

/// The size of the pipe, in bytes.
const PIPE: usize = 64 << 10;

/// Reaches the node of this process and no other.
pub(crate) struct KubeletPipe {
    node: String,
    kubelet: OnceLock<Kubelet>,
    /// Where the kubelet carries out requests, whoever dials.
    node_runtime: Handle,
}

impl KubeletPipe {
    pub(crate) fn new(node: &str, node_runtime: Handle) -> Self {
        Self { node: node.to_owned(), kubelet: OnceLock::new(), node_runtime }
    }

    /// From now on the kubelet can be reached. Only the first one counts.
    pub(crate) fn connect(&self, kubelet: Kubelet) {
        let _ = self.kubelet.set(kubelet);
    }
}

impl NodeDialer for KubeletPipe {
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>> {
        async move {
            if node != self.node {
                let why = format!("the kubelet of node {node:?} does not run in this process");
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
            let kubelet = self.kubelet.get().ok_or(io::ErrorKind::NotConnected)?.clone();
            let (ours, theirs) = tokio::io::duplex(PIPE);
            self.node_runtime.spawn(async move { kubelet.serve_stream(theirs).await });
            Ok(Box::new(ours) as Box<dyn DialedStream>)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dial_reaches_no_kubelet_by_another_nodes_name() {
        let pipe = KubeletPipe::new("n", Handle::current());
        let kind = async |node| pipe.dial(node).await.map(drop).unwrap_err().kind();
        assert_eq!(kind("other").await, io::ErrorKind::NotFound);
        assert_eq!(kind("").await, io::ErrorKind::NotFound);
        // The name is right, and the kubelet does not run yet.
        assert_eq!(kind("n").await, io::ErrorKind::NotConnected);
    }
}
