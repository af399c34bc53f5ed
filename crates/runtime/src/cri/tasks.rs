//! containerd's own task service, for what the CRI cannot say.

use super::runtime::gone_is_fine;
use super::{
    CriRuntime, call,
    proto::tasks::{DeleteTaskRequest, GetRequest, KillRequest, WaitRequest, tasks_client::TasksClient},
};
use crate::RuntimeError;
use nix::sys::signal::Signal;
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

    /// Ends a task of which the CRI knows nothing.
    pub(super) async fn end_task(&self, id: &str) -> Result<(), RuntimeError> {
        let (container_id, exec_id) = (id.to_owned(), String::new());
        let kill = KillRequest { container_id, exec_id, signal: Signal::SIGKILL as u32, all: true };
        // One that has ended already, or was never started, cannot be killed; that it goes is what counts.
        let _ = call(ASKED, tasks(self).kill(in_namespace(kill))).await;
        let wait = WaitRequest { container_id: id.to_owned(), exec_id: String::new() };
        let _ = call(ASKED, tasks(self).wait(in_namespace(wait))).await;
        let delete = DeleteTaskRequest { container_id: id.to_owned() };
        gone_is_fine(call(ASKED, tasks(self).delete(in_namespace(delete))).await)
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
