//! containerd's own task service, for what the CRI cannot say.

use super::{
    CriRuntime, call,
    proto::tasks::{GetRequest, tasks_client::TasksClient},
};
use crate::RuntimeError;
use std::time::Duration;
use tonic::{Request, metadata::MetadataValue, transport::Channel};

/// containerd's namespace of what the CRI makes.
const NAMESPACE: &str = "k8s.io";

/// How long it may take to say whether there is a task.
const ASKED: Duration = Duration::from_secs(5);

impl CriRuntime {
    /// Whether containerd knows of a task of this container or sandbox.
    pub(crate) async fn has_task(&self, id: &str) -> Result<bool, RuntimeError> {
        let request = GetRequest { container_id: id.to_owned(), exec_id: String::new() };
        match call(ASKED, tasks(self).get(in_namespace(request))).await {
            Ok(_) => Ok(true),
            Err(RuntimeError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn tasks(runtime: &CriRuntime) -> TasksClient<Channel> {
    TasksClient::new(runtime.channel.clone())
}

pub(super) fn in_namespace<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    request
}
