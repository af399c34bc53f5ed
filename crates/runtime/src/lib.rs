//! Container runtime interface: a trait modelled after the CRI, and its implementation as a CRI client.
//!
//! **Invariant:** this crate does not depend on the Kubernetes API. The kubelet translates a Pod into these types.
//!
//! **Invariant:** containers outlive this process. Dropping a [`Runtime`] stops no containers.
#![forbid(unsafe_code)]

mod cri;
mod file_limit;
mod image;
mod image_reference;
mod import;
mod model;
mod mount;
mod process;
mod session;
mod signal;
mod usage;

pub use cri::{CriRuntime, remove_pods};
pub use file_limit::{container_file_limits, raise_file_limit};
pub use image::{Image, ImageSpec, RegistryAuth};
pub use image_reference::{DEFAULT_DOMAIN, ReferenceError, ReferenceParts};
pub use import::{ImportError, import};
pub use model::*;
pub use mount::{IdMapping, ImageMount, Mount, Propagation};
pub use process::{Process, add_descendants, pids_below};
pub use session::*;
pub use signal::StopSignal;
pub use usage::ContainerDisk;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use std::time::Duration;

/// Future of a runtime call.
pub type Call<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

/// Container runtime: the CRI's `RuntimeService` and `ImageService`.
///
/// Calls are idempotent: stopping a stopped container and removing a missing one succeed. Each call has a deadline: the
/// kubelet's `runtimeRequestTimeout` (2 min), plus the grace period for stops.
pub trait Runtime: Send + Sync + 'static {
    /// Returns name and version for `node.status.nodeInfo.containerRuntimeVersion`.
    fn version(&self) -> Call<'_, Version>;
    /// Returns whether the runtime and its network are ready.
    fn status(&self) -> Call<'_, RuntimeStatus>;

    /// Returns the cgroup driver of the runtime (`RuntimeConfig`); `None` if it uses that of the kubelet's configuration.
    ///
    /// # Errors
    /// [`RuntimeError::Unimplemented`] if the runtime does not know the call.
    fn cgroup_driver(&self) -> Call<'_, Option<CgroupDriver>> {
        std::future::ready(Ok(None)).boxed()
    }

    /// Creates and starts a sandbox with its network.
    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Call<'a, SandboxId>;
    /// Kills all containers of a sandbox (SIGKILL) and releases its network. Succeeds if the sandbox does not exist.
    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()>;
    /// Removes a sandbox and all its containers. Succeeds if the sandbox does not exist.
    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()>;
    /// Returns state and addresses of a sandbox.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] if it does not exist.
    fn sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, SandboxStatus>;
    /// Lists the sandboxes of this runtime's owner, without addresses.
    fn sandboxes(&self) -> Call<'_, Vec<SandboxStatus>>;

    /// Creates a container without starting it.
    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, ContainerId>;
    /// Starts a created container.
    fn start_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()>;
    /// Sends the stop signal (`signal`, else the image's, else SIGTERM), waits up to `grace`, and sends SIGKILL. Returns
    /// when the container has stopped. A concurrent call with a shorter grace period shortens the first.
    fn stop_container<'a>(&'a self, id: &'a ContainerId, grace: Duration, signal: Option<StopSignal>) -> Call<'a, ()>;
    /// Removes a container, and kills it if it is running. Succeeds if the container does not exist.
    fn remove_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()>;
    /// Returns the state of a container, including its exit code.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] if it does not exist.
    fn container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ContainerStatus>;
    /// Lists the containers of Podium's Pods. Only [`Runtime::container`] sets `exit`.
    fn containers(&self) -> Call<'_, Vec<ContainerStatus>>;
    /// Returns the usage of a container's writable layer, or `None` before the runtime has measured it.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] if it does not exist.
    fn container_disk<'a>(&'a self, id: &'a ContainerId) -> Call<'a, Option<ContainerDisk>>;
    /// Reopens a container's log file after its rotation.
    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()>;
    /// Sets new resource limits on a running container.
    fn update_resources<'a>(&'a self, id: &'a ContainerId, resources: &'a LinuxResources) -> Call<'a, ()>;

    /// Runs a command in a container and collects its output (at most 16 MiB).
    ///
    /// # Errors
    /// [`RuntimeError::Deadline`] if it exceeds `timeout`; its descendants are killed, too.
    fn exec_sync<'a>(&'a self, id: &'a ContainerId, command: &'a [String], timeout: Duration) -> Call<'a, ExecOutput>;
    /// Runs a command with streams attached.
    fn exec<'a>(&'a self, id: &'a ContainerId, command: &'a [String], io: SessionIo) -> Call<'a, Session>;
    /// Attaches to the container's own process.
    fn attach<'a>(&'a self, id: &'a ContainerId, io: SessionIo) -> Call<'a, Session>;
    /// Opens one connection to a TCP port on loopback inside the sandbox's network namespace.
    fn port_forward<'a>(&'a self, id: &'a SandboxId, port: u16) -> Call<'a, PortForward>;

    /// Returns a local image, or `None` if it is not present.
    fn image<'a>(&'a self, image: ImageSpec<'a>) -> Call<'a, Option<Image>>;
    /// Returns the stop signal of an image (`STOPSIGNAL`), if it has one and the runtime reports it.
    fn image_stop_signal<'a>(&'a self, image: &'a str) -> Call<'a, Option<StopSignal>>;
    /// Pulls an image and returns its reference (an ID or digest) to create containers with.
    fn pull_image<'a>(&'a self, image: ImageSpec<'a>, auth: Option<&'a RegistryAuth>) -> Call<'a, String>;
    /// Lists the local images.
    fn images(&self) -> Call<'_, Vec<Image>>;
    /// Returns the mount point of the image file system, or `None` if the runtime does not report it.
    fn image_fs(&self) -> Call<'_, Option<std::path::PathBuf>>;
    /// Removes an image. Succeeds if the image does not exist.
    fn remove_image<'a>(&'a self, image: &'a str) -> Call<'a, ()>;

    /// Streams container events. After lost events and after every reconnect it yields [`RuntimeEvent::Resync`], and the
    /// caller must relist. The stream never ends.
    fn events(&self) -> BoxStream<'static, RuntimeEvent>;

    /// Refuses further changes by this process, and waits for those that run, for a limited time. Containers keep running. A
    /// runtime that is another process does nothing.
    fn close(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}
