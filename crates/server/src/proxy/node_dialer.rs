//! Connections to kubelets.

use futures::future::BoxFuture;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to a kubelet's HTTP/1.1 server.
pub trait DialedStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> DialedStream for T {}

/// Connects to a node's kubelet: by a pipe in the same process, or by TLS.
pub trait NodeDialer: Send + Sync + 'static {
    /// Opens a stream to the kubelet of this node.
    ///
    /// # Errors
    /// When there is no such node, or it does not respond.
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>>;
}
