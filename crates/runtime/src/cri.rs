//! A CRI v1 endpoint: containerd, CRI-O, or whatever speaks it.

mod convert;
mod events;
mod exec;
mod processes;
mod runtime;
mod stop;
mod stream;
mod task_exit;
mod tasks;
mod unread;

use crate::RuntimeError;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// The generated protocol.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub(crate) mod proto {
    tonic::include_proto!("runtime.v1");
    /// containerd's own events.
    pub(crate) mod events {
        tonic::include_proto!("containerd.services.events.v1");
    }
    /// containerd's own tasks.
    pub(crate) mod tasks {
        tonic::include_proto!("containerd.services.tasks.v1");
    }
}

use proto::{image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient};

/// Upstream's `runtimeRequestTimeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// The largest answer: 16 MiB, as upstream's kubelet allows.
const MAX_MESSAGE: usize = 16 << 20;

/// A connection to a CRI v1 endpoint. Cheap to clone; connects when it is first used, and again when it must.
#[derive(Debug, Clone)]
pub struct CriRuntime {
    channel: Channel,
    /// Who makes sandboxes through this connection; those of others in the same runtime are left alone.
    owner: Arc<str>,
    /// Containers that were sent their stop signal, until they have ended.
    signalled: Arc<Mutex<HashSet<String>>>,
    /// Commands that ended, where somebody waits for that.
    ended: unread::Ended,
}

impl CriRuntime {
    /// Names an endpoint, `unix:///run/containerd/containerd.sock` or a plain path, and whose sandboxes are meant:
    /// a runtime may serve others too. The owner of a cluster's sandboxes is its data directory.
    ///
    /// # Errors
    /// When it is no unix socket's address.
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
        // The address is never dialled: the connector goes to the socket.
        let channel = Endpoint::from_static("http://runtime").connect_with_connector_lazy(connector);
        Ok(Self {
            channel,
            owner: owner.display().to_string().into(),
            signalled: Arc::default(),
            ended: unread::Ended::default(),
        })
    }

    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }
}

/// A call with its deadline.
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
