//! Implementation of the [`Runtime`] trait.

use crate::{Engine, containers, exec, image_service, port_forward, sandboxes, session, start, state::Sandbox, stop};
use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use runtime::{
    Call, ContainerConfig, ContainerDisk, ContainerId, ContainerStatus, ExecOutput, Handler, Image, ImageSpec,
    LinuxResources, NamespaceMode, PortForward, RegistryAuth, Runtime, RuntimeError, RuntimeEvent, RuntimeStatus,
    SandboxConfig, SandboxId, SandboxStatus, Session, SessionIo, StopSignal, Version,
};
use std::{path::PathBuf, time::Duration};

impl Runtime for Engine {
    fn version(&self) -> Call<'_, Version> {
        let version = Version { name: "podium".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        std::future::ready(Ok(version)).boxed()
    }

    fn status(&self) -> Call<'_, RuntimeStatus> {
        async {
            let mut handlers = Vec::new();
            for name in std::iter::once("").chain(self.0.handlers.names()) {
                handlers.push(Handler {
                    name: name.to_owned(),
                    recursive_read_only_mounts: self.0.recursive_read_only_mounts(name).await,
                    user_namespaces: self.0.user_namespaces(name).await,
                });
            }
            Ok(RuntimeStatus {
                runtime_not_ready: None,
                network_not_ready: self.0.options.network.not_ready().await,
                handlers,
                supplemental_groups_policy: true,
            })
        }
        .boxed()
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Call<'a, SandboxId> {
        self.0.tasks.to_the_end(sandboxes::run(self.0.clone(), config.clone())).boxed()
    }

    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()> {
        self.0.tasks.to_the_end(sandboxes::stop(self.0.clone(), id.0.clone())).boxed()
    }

    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()> {
        self.0.tasks.to_the_end(sandboxes::remove(self.0.clone(), id.0.clone())).boxed()
    }

    fn sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, SandboxStatus> {
        std::future::ready(self.0.sandbox(&id.0).map(|sandbox| status(&sandbox))).boxed()
    }

    fn sandboxes(&self) -> Call<'_, Vec<SandboxStatus>> {
        let all = self.0.sandboxes.lock().values().map(|sandbox| status(sandbox)).collect();
        std::future::ready(Ok(all)).boxed()
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, ContainerId> {
        let create = containers::create(self.0.clone(), sandbox.0.clone(), config.clone(), sandbox_config.clone());
        self.0.tasks.to_the_end(create).boxed()
    }

    fn start_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        self.0.tasks.to_the_end(start::start(self.0.clone(), id.0.clone())).boxed()
    }

    fn stop_container<'a>(&'a self, id: &'a ContainerId, grace: Duration, signal: Option<StopSignal>) -> Call<'a, ()> {
        stop::stop(&self.0, &id.0, grace, signal).boxed()
    }

    fn remove_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        self.0.tasks.to_the_end(containers::remove(self.0.clone(), id.0.clone())).boxed()
    }

    fn container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ContainerStatus> {
        std::future::ready(self.0.container(&id.0).map(|(_, container)| container.status())).boxed()
    }

    fn containers(&self) -> Call<'_, Vec<ContainerStatus>> {
        let sandboxes: Vec<_> = self.0.sandboxes.lock().values().cloned().collect();
        let all = sandboxes.iter().flat_map(|sandbox| sandbox.all_containers());
        let all = all.map(|container| ContainerStatus { exit: None, ..container.status() }).collect();
        std::future::ready(Ok(all)).boxed()
    }

    fn container_disk<'a>(&'a self, id: &'a ContainerId) -> Call<'a, Option<ContainerDisk>> {
        containers::disk(&self.0, &id.0).boxed()
    }

    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        containers::reopen_log(&self.0, &id.0).boxed()
    }

    fn update_resources<'a>(&'a self, id: &'a ContainerId, resources: &'a LinuxResources) -> Call<'a, ()> {
        containers::update_resources(&self.0, &id.0, resources).boxed()
    }

    fn exec_sync<'a>(&'a self, id: &'a ContainerId, command: &'a [String], timeout: Duration) -> Call<'a, ExecOutput> {
        exec::exec_sync(&self.0, &id.0, command, timeout).boxed()
    }

    fn exec<'a>(&'a self, id: &'a ContainerId, command: &'a [String], io: SessionIo) -> Call<'a, Session> {
        session::exec(&self.0, &id.0, command, io).boxed()
    }

    fn attach<'a>(&'a self, id: &'a ContainerId, io: SessionIo) -> Call<'a, Session> {
        session::attach(&self.0, &id.0, io).boxed()
    }

    fn port_forward<'a>(&'a self, id: &'a SandboxId, port: u16) -> Call<'a, PortForward> {
        async move {
            let sandbox = self.0.sandbox(&id.0)?;
            if sandbox.record().has_container() {
                let text = "port forwarding needs a network stack of the node, which runtime handlers with a sandbox \
                            container do not use";
                return Err(RuntimeError::Unimplemented(text.to_owned()));
            }
            let netns = match sandbox.record().network {
                NamespaceMode::Node => None,
                _ => Some(network_namespace(&sandbox.keeper()?)?),
            };
            port_forward::connect(netns, port).await
        }
        .boxed()
    }

    fn image<'a>(&'a self, image: ImageSpec<'a>) -> Call<'a, Option<Image>> {
        image_service::find(&self.0, image.image).boxed()
    }

    fn image_stop_signal<'a>(&'a self, image: &'a str) -> Call<'a, Option<StopSignal>> {
        image_service::stop_signal(&self.0, image).boxed()
    }

    fn pull_image<'a>(&'a self, image: ImageSpec<'a>, auth: Option<&'a RegistryAuth>) -> Call<'a, String> {
        image_service::pull(&self.0, image.image, auth).boxed()
    }

    fn images(&self) -> Call<'_, Vec<Image>> {
        image_service::list(&self.0).boxed()
    }

    fn image_fs(&self) -> Call<'_, Option<PathBuf>> {
        std::future::ready(Ok(Some(self.0.options.images.root().to_owned()))).boxed()
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> Call<'a, ()> {
        image_service::remove(&self.0, image).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.tasks.close().boxed()
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        self.0.events.stream()
    }
}

/// Returns the path of the network namespace that a keeper holds.
///
/// # Errors
/// When it holds none.
pub(crate) fn network_namespace(keeper: &keeper::Client) -> Result<PathBuf, RuntimeError> {
    let hello = keeper.hello();
    let missing = || RuntimeError::Failed("the keeper of the sandbox has no network namespace".to_owned());
    Ok(hello.namespace_path(hello.namespaces.network.ok_or_else(missing)?))
}

/// Returns the status of a sandbox. Without its keeper it is not ready.
fn status(sandbox: &Sandbox) -> SandboxStatus {
    let status = sandbox.record().status();
    SandboxStatus { ready: status.ready && sandbox.has_keeper(), ..status }
}
