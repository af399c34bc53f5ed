//! CRI v1 client, for containerd, CRI-O and other runtimes.

mod convert;
mod events;
mod exec;
mod processes;
mod remove_pods;
mod runtime;
mod stop;
mod stream;
mod task_exit;
mod tasks;
mod unread_stdin;

pub use remove_pods::remove_pods;

use crate::RuntimeError;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use proto::{image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Generated CRI messages and clients.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub(crate) mod proto {
    tonic::include_proto!("runtime.v1");
    /// containerd's event service.
    pub(crate) mod events {
        tonic::include_proto!("containerd.services.events.v1");
    }
    /// containerd's task service.
    pub(crate) mod tasks {
        tonic::include_proto!("containerd.services.tasks.v1");
    }
}

/// Default of the kubelet's `runtimeRequestTimeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a response, as in upstream's kubelet (`maxMsgSize`).
const MAX_MESSAGE: usize = 16 << 20;

/// Connection to a CRI v1 endpoint. Cheap to clone. Connects lazily and reconnects.
#[derive(Debug, Clone)]
pub struct CriRuntime {
    channel: Channel,
    /// Owner of the sandboxes of this connection. Sandboxes of other owners in the same runtime are ignored.
    owner: Arc<str>,
    /// Containers that were sent their stop signal and have not exited.
    signalled: Arc<Mutex<HashSet<String>>>,
    /// Exited commands of containers with sessions that write to stdin.
    ended: unread_stdin::ExitedCommands,
}

impl CriRuntime {
    /// Creates a client of an endpoint, `unix:///run/containerd/containerd.sock` or a plain path. The owner of a cluster's
    /// sandboxes is its data directory: a runtime may serve several clusters.
    ///
    /// # Errors
    /// If the endpoint is not a Unix socket.
    pub fn new(endpoint: &str, owner: &Path) -> Result<Self, RuntimeError> {
        let path = match endpoint.split_once("://") {
            None | Some(("unix", _)) => PathBuf::from(endpoint.trim_start_matches("unix://")),
            Some((scheme, _)) => {
                return Err(RuntimeError::Failed(format!("{endpoint}: {scheme} is not supported, use unix://")));
            }
        };
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The URL is a placeholder: the connector dials the Unix socket.
        let channel = Endpoint::from_static("http://runtime").connect_with_connector_lazy(connector);
        Ok(Self {
            channel,
            owner: owner.display().to_string().into(),
            signalled: Arc::default(),
            ended: unread_stdin::ExitedCommands::default(),
        })
    }

    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }
}

/// Runs a call with a deadline.
async fn call<T>(
    limit: Duration,
    work: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, RuntimeError> {
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(convert::error(&status)),
        Err(_) => Err(RuntimeError::Deadline(format!("the container runtime did not answer within {limit:?}"))),
    }
}
