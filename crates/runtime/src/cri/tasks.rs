//! containerd's own task service, for what the CRI cannot say.

use super::{CriRuntime, proto::tasks::tasks_client::TasksClient};
use tonic::{Request, metadata::MetadataValue, transport::Channel};

/// containerd's namespace of what the CRI makes.
const NAMESPACE: &str = "k8s.io";

pub(super) fn tasks(runtime: &CriRuntime) -> TasksClient<Channel> {
    TasksClient::new(runtime.channel.clone())
}

pub(super) fn in_namespace<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    request
}
