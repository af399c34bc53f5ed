//! Client of containerd's task service, for operations that the CRI lacks.

use super::{
    CriRuntime, call,
    proto::tasks::{DeleteTaskRequest, KillRequest, WaitRequest, tasks_client::TasksClient},
    runtime::ignore_not_found,
};
use crate::RuntimeError;
use nix::sys::signal::Signal;
use std::time::Duration;
use tonic::{Request, metadata::MetadataValue, transport::Channel};

/// containerd namespace of the CRI plugin.
const NAMESPACE: &str = "k8s.io";

/// Timeout for the lookup of a task.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

impl CriRuntime {
    /// Kills and deletes a task that is unknown to the CRI.
    pub(super) async fn end_task(&self, id: &str) -> Result<(), RuntimeError> {
        let (container_id, exec_id) = (id.to_owned(), String::new());
        let kill = KillRequest { container_id, exec_id, signal: Signal::SIGKILL as u32, all: true };
        // Killing an exited or never started task fails; only the deletion matters.
        let _ = call(LOOKUP_TIMEOUT, tasks(self).kill(in_namespace(kill))).await;
        let wait = WaitRequest { container_id: id.to_owned(), exec_id: String::new() };
        let _ = call(LOOKUP_TIMEOUT, tasks(self).wait(in_namespace(wait))).await;
        let delete = DeleteTaskRequest { container_id: id.to_owned() };
        ignore_not_found(call(LOOKUP_TIMEOUT, tasks(self).delete(in_namespace(delete))).await)
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
