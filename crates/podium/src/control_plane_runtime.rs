//! The async runtime of the API server, the scheduler and the controllers.
//!
//! The kubelet, DNS and the network run in the process's main runtime, so that API load does not delay probes, container
//! restarts, DNS and Services.

use std::io;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Handle, Runtime},
};

/// Name of the worker threads.
const THREAD_NAME: &str = "control-plane";
/// Number of worker threads; each keeps its own allocator arena.
const WORKER_THREADS: usize = 2;

/// A Tokio runtime that may be dropped inside a task of another runtime.
pub(crate) struct ControlPlaneRuntime(Option<Runtime>, Handle);

impl ControlPlaneRuntime {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(WORKER_THREADS).thread_name(THREAD_NAME).enable_all().build()?;
        let handle = runtime.handle().clone();
        Ok(Self(Some(runtime), handle))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.1
    }

    /// Registers a listener with this runtime's reactor.
    pub(crate) fn register(&self, listener: TcpListener) -> io::Result<TcpListener> {
        let listener = listener.into_std()?;
        let _entered = self.1.enter();
        TcpListener::from_std(listener)
    }
}

impl Drop for ControlPlaneRuntime {
    fn drop(&mut self) {
        // A task must not block on the threads of a runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, time::Duration};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn listener_is_served_while_its_first_runtime_is_blocked() {
        let control_plane = ControlPlaneRuntime::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = control_plane.register(listener).unwrap();
        let accepted = control_plane.handle().spawn(async move { listener.accept().await.map(drop) });
        let (sender, connected) = mpsc::channel();
        control_plane.handle().spawn(async move {
            let result = TcpStream::connect(address).await.map(drop).and(accepted.await.map_err(io::Error::other)?);
            sender.send(result).map_err(io::Error::other)
        });
        // Blocks the only thread of this test's runtime.
        connected.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    }
}
