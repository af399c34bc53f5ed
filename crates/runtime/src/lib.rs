//! Containers: one trait, shaped after the CRI, and the runtimes behind it.
//!
//! **Invariant:** nothing here knows the Kubernetes API. The kubelet translates a Pod into these types; a runtime
//! (a CRI endpoint today, an embedded one later) carries them out.
//!
//! **Invariant:** a runtime's containers outlive this process. Dropping a [`Runtime`] stops nothing.
#![forbid(unsafe_code)]

pub mod containerd;
mod cri;
mod file_limit;
mod image;
mod import;
mod model;
mod mount;
mod pause;
mod session;
mod signal;
mod usage;

pub use cri::CriRuntime;
pub use file_limit::raise_file_limit;
pub use image::{Image, ImageSpec, RegistryAuth};
pub use import::{ImportError, import};
pub use model::*;
pub use mount::{IdMapping, ImageMount, Mount, Propagation};
pub use session::*;
pub use signal::StopSignal;
pub use usage::ContainerDisk;

use futures::{future::BoxFuture, stream::BoxStream};
use std::time::Duration;

/// The answer of a runtime call.
pub type Call<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

/// What Podium asks of a container runtime.
///
/// Every call is safe to repeat: stopping what has stopped and removing what is gone succeed. Calls carry their own
/// deadline (the CRI's `runtimeRequestTimeout`, 2 min, plus the grace period for stops); an implementation never waits for ever.
pub trait Runtime: Send + Sync + 'static {
    /// Name and version, as `node.status.nodeInfo.containerRuntimeVersion` shows them.
    fn version(&self) -> Call<'_, Version>;
    /// Whether the runtime and its network are ready.
    fn status(&self) -> Call<'_, RuntimeStatus>;

    /// Creates and starts a sandbox with its network.
    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Call<'a, SandboxId>;
    /// Stops whatever runs in the sandbox (SIGKILL) and releases its network. A sandbox that is gone is a success.
    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()>;
    /// Removes a sandbox and every container in it. A sandbox that is gone is a success.
    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()>;
    /// State and addresses of one sandbox.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when it is gone.
    fn sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, SandboxStatus>;
    /// All sandboxes of this runtime's owner, without their addresses.
    fn sandboxes(&self) -> Call<'_, Vec<SandboxStatus>>;

    /// Creates a container; it does not run yet.
    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, ContainerId>;
    /// Starts a created container.
    fn start_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()>;
    /// Sends the stop signal (this one, else the image's, else SIGTERM), waits up to `grace`, then sends SIGKILL; returns
    /// when the container has stopped. A second call with a shorter grace shortens the first.
    fn stop_container<'a>(&'a self, id: &'a ContainerId, grace: Duration, signal: Option<StopSignal>) -> Call<'a, ()>;
    /// Removes a container, by force when it runs. A container that is gone is a success.
    fn remove_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()>;
    /// State of one container, its exit code included.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when it is gone.
    fn container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ContainerStatus>;
    /// All containers of Podium's Pods; `exit` is only filled by [`Runtime::container`].
    fn containers(&self) -> Call<'_, Vec<ContainerStatus>>;
    /// What a container has written to its root file system; nothing while the runtime has not counted it.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when it is gone.
    fn container_disk<'a>(&'a self, id: &'a ContainerId) -> Call<'a, Option<ContainerDisk>>;
    /// Asks the runtime to reopen a container's log file after it was rotated away.
    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()>;
    /// Sets new resource limits on a running container.
    fn update_resources<'a>(&'a self, id: &'a ContainerId, resources: &'a LinuxResources) -> Call<'a, ()>;

    /// Runs a command in a container and collects its output (at most 16 MiB).
    ///
    /// # Errors
    /// [`RuntimeError::Deadline`] when it outlives `timeout`; what it started is killed.
    fn exec_sync<'a>(&'a self, id: &'a ContainerId, command: &'a [String], timeout: Duration) -> Call<'a, ExecOutput>;
    /// Runs a command with streams attached.
    fn exec<'a>(&'a self, id: &'a ContainerId, command: &'a [String], io: SessionIo) -> Call<'a, Session>;
    /// Attaches to the container's own process.
    fn attach<'a>(&'a self, id: &'a ContainerId, io: SessionIo) -> Call<'a, Session>;
    /// Opens one connection to a TCP port on loopback inside the sandbox's network namespace.
    fn port_forward<'a>(&'a self, id: &'a SandboxId, port: u16) -> Call<'a, PortForward>;

    /// Resolves an image that is present; `None` when it is not.
    fn image<'a>(&'a self, image: ImageSpec<'a>) -> Call<'a, Option<Image>>;
    /// The stop signal that an image names (`STOPSIGNAL`), if it does and the runtime tells.
    fn image_stop_signal<'a>(&'a self, image: &'a str) -> Call<'a, Option<StopSignal>>;
    /// Pulls an image; the answer is its reference (an id or digest) to create containers with.
    fn pull_image<'a>(&'a self, image: ImageSpec<'a>, auth: Option<&'a RegistryAuth>) -> Call<'a, String>;
    /// All images that are present.
    fn images(&self) -> Call<'_, Vec<Image>>;
    /// Where images are on this node; `None` when the runtime does not say.
    fn image_fs(&self) -> Call<'_, Option<std::path::PathBuf>>;
    /// Removes an image. One that is gone is a success.
    fn remove_image<'a>(&'a self, image: &'a str) -> Call<'a, ()>;

    /// What happens to containers, as it happens. The stream may lose facts (it says so with
    /// [`RuntimeEvent::Resync`], and after every reconnect): a relist repairs what it lost. It never ends by itself.
    fn events(&self) -> BoxStream<'static, RuntimeEvent>;
}
