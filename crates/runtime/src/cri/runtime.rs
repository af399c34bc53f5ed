//! Implementation of the [`Runtime`] trait with CRI calls.

use super::{CriRuntime, REQUEST_TIMEOUT, call, convert, events, exec, proto, stop, stream};
use crate::{
    Call, CgroupDriver, ContainerConfig, ContainerDisk, ContainerId, ContainerStatus, ExecOutput, Image, ImageSpec,
    LinuxResources, PortForward, RegistryAuth, Runtime, RuntimeError, RuntimeEvent, RuntimeStatus, SandboxConfig,
    SandboxId, SandboxStatus, Session, SessionIo, StopSignal, Version,
};
use futures::{FutureExt, stream::BoxStream};
use std::{path::PathBuf, time::Duration};

fn missing(field: &str) -> RuntimeError {
    RuntimeError::Failed(format!("the container runtime's answer lacks {field}"))
}

fn image_spec(spec: ImageSpec<'_>) -> proto::ImageSpec {
    let (image, runtime_handler) = (spec.image.to_owned(), spec.runtime_handler.to_owned());
    proto::ImageSpec { image, runtime_handler, ..proto::ImageSpec::default() }
}

fn image_request(spec: ImageSpec<'_>) -> proto::ImageRequest {
    proto::ImageRequest { image: Some(image_spec(spec)), verbose: false }
}

/// Maps `NotFound` to success.
pub(super) fn ignore_not_found<T>(result: Result<T, RuntimeError>) -> Result<(), RuntimeError> {
    match result {
        Ok(_) | Err(RuntimeError::NotFound(_)) => Ok(()),
        Err(e) => Err(e),
    }
}

impl Runtime for CriRuntime {
    fn version(&self) -> Call<'_, Version> {
        async {
            let v = call(REQUEST_TIMEOUT, self.runtime().version(proto::VersionRequest { version: "v1".to_owned() }))
                .await?;
            Ok(Version { name: v.runtime_name, version: v.runtime_version })
        }
        .boxed()
    }

    fn cgroup_driver(&self) -> Call<'_, Option<CgroupDriver>> {
        async {
            let answer = call(REQUEST_TIMEOUT, self.runtime().runtime_config(proto::Empty {})).await?;
            answer.linux.map(|linux| convert::cgroup_driver(linux.cgroup_driver)).transpose()
        }
        .boxed()
    }

    fn status(&self) -> Call<'_, RuntimeStatus> {
        async {
            let answer = call(REQUEST_TIMEOUT, self.runtime().status(proto::Empty {})).await?;
            let conditions = answer.status.ok_or_else(|| missing("a status"))?.conditions;
            let not_ready = |name: &str| match conditions.iter().find(|c| c.r#type == name) {
                Some(c) if c.status => None,
                Some(c) => Some(format!("{}: {}", c.reason, c.message)),
                None => Some(format!("the runtime does not report {name}")),
            };
            Ok(RuntimeStatus {
                runtime_not_ready: not_ready("RuntimeReady"),
                network_not_ready: not_ready("NetworkReady"),
                handlers: answer.runtime_handlers.into_iter().map(convert::handler).collect(),
                supplemental_groups_policy: answer.features.is_some_and(|features| features.supplemental_groups_policy),
            })
        }
        .boxed()
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Call<'a, SandboxId> {
        async {
            let request = proto::RunPodSandboxRequest {
                config: Some(convert::sandbox_config(config, &self.owner)),
                runtime_handler: config.runtime_handler.clone(),
            };
            Ok(SandboxId(call(REQUEST_TIMEOUT * 2, self.runtime().run_pod_sandbox(request)).await?.pod_sandbox_id))
        }
        .boxed()
    }

    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()> {
        let request = proto::PodSandboxId { pod_sandbox_id: id.0.clone() };
        async { ignore_not_found(call(REQUEST_TIMEOUT, self.runtime().stop_pod_sandbox(request)).await) }.boxed()
    }

    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()> {
        let request = proto::PodSandboxId { pod_sandbox_id: id.0.clone() };
        async { ignore_not_found(call(REQUEST_TIMEOUT, self.runtime().remove_pod_sandbox(request)).await) }.boxed()
    }

    fn sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, SandboxStatus> {
        async {
            let request = proto::PodSandboxId { pod_sandbox_id: id.0.clone() };
            let answer = call(REQUEST_TIMEOUT, self.runtime().pod_sandbox_status(request)).await?;
            let s = answer.status.ok_or_else(|| missing("a sandbox status"))?;
            let mut status = convert::sandbox_status(s.id, s.metadata.unwrap_or_default(), s.state, s.created_at);
            let network = s.network.unwrap_or_default();
            let all = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|i| i.ip));
            status.ips = all.filter_map(|ip| ip.parse().ok()).collect();
            Ok(status)
        }
        .boxed()
    }

    fn sandboxes(&self) -> Call<'_, Vec<SandboxStatus>> {
        async {
            let items = call(REQUEST_TIMEOUT, self.runtime().list_pod_sandbox(proto::Empty {})).await?.items;
            let owned =
                items.into_iter().filter(|s| s.labels.get(crate::labels::OWNER).is_some_and(|o| **o == *self.owner));
            Ok(owned
                .map(|s| convert::sandbox_status(s.id, s.metadata.unwrap_or_default(), s.state, s.created_at))
                .collect())
        }
        .boxed()
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, ContainerId> {
        async {
            let request = proto::CreateContainerRequest {
                pod_sandbox_id: sandbox.0.clone(),
                config: Some(convert::container_config(config, sandbox_config)),
                sandbox_config: Some(convert::sandbox_config(sandbox_config, &self.owner)),
            };
            let answer = Box::pin(call(REQUEST_TIMEOUT, self.runtime().create_container(request))).await?;
            Ok(ContainerId(answer.container_id))
        }
        .boxed()
    }

    fn start_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        let request = proto::ContainerId { container_id: id.0.clone() };
        async { call(REQUEST_TIMEOUT, self.runtime().start_container(request)).await.map(drop) }.boxed()
    }

    fn stop_container<'a>(&'a self, id: &'a ContainerId, grace: Duration, signal: Option<StopSignal>) -> Call<'a, ()> {
        stop::stop(self, id, grace, signal).boxed()
    }

    fn remove_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        let request = || proto::ContainerId { container_id: id.0.clone() };
        let remove =
            async move || ignore_not_found(call(REQUEST_TIMEOUT, self.runtime().remove_container(request())).await);
        async move {
            match remove().await {
                // The task is unknown to the CRI if containerd crashed while it started the task.
                Err(RuntimeError::Failed(words)) if words.contains("cannot delete running task") => {
                    self.end_task(&id.0).await?;
                    remove().await
                }
                removed => removed,
            }
        }
        .boxed()
    }

    fn container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ContainerStatus> {
        let request = proto::ContainerId { container_id: id.0.clone() };
        async {
            let answer = call(REQUEST_TIMEOUT, self.runtime().container_status(request)).await?;
            Ok(convert::container_status(answer.status.ok_or_else(|| missing("a container status"))?))
        }
        .boxed()
    }

    fn containers(&self) -> Call<'_, Vec<ContainerStatus>> {
        async {
            let all = call(REQUEST_TIMEOUT, self.runtime().list_containers(proto::Empty {})).await?.containers;
            Ok(all.into_iter().map(convert::container).filter(|c| !c.uid.is_empty()).collect())
        }
        .boxed()
    }

    // One call per container: in containerd 1.6 the list call fails if a container exits meanwhile.
    fn container_disk<'a>(&'a self, id: &'a ContainerId) -> Call<'a, Option<ContainerDisk>> {
        let request = proto::ContainerId { container_id: id.0.clone() };
        async {
            let stats = call(REQUEST_TIMEOUT, self.runtime().container_stats(request)).await?.stats;
            Ok(stats.and_then(convert::container_disk))
        }
        .boxed()
    }

    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        let request = proto::ContainerId { container_id: id.0.clone() };
        async { call(REQUEST_TIMEOUT, self.runtime().reopen_container_log(request)).await.map(drop) }.boxed()
    }

    fn update_resources<'a>(&'a self, id: &'a ContainerId, resources: &'a LinuxResources) -> Call<'a, ()> {
        async {
            let request = proto::UpdateContainerResourcesRequest {
                container_id: id.0.clone(),
                linux: Some(convert::resources(resources)),
            };
            call(REQUEST_TIMEOUT, self.runtime().update_container_resources(request)).await.map(drop)
        }
        .boxed()
    }

    fn exec_sync<'a>(&'a self, id: &'a ContainerId, command: &'a [String], timeout: Duration) -> Call<'a, ExecOutput> {
        async move {
            let seconds = i64::try_from(timeout.as_secs().max(1)).unwrap_or(i64::MAX);
            let request =
                proto::ExecSyncRequest { container_id: id.0.clone(), cmd: command.to_vec(), timeout: seconds };
            let mut runtime = self.runtime();
            let answer = call(timeout + Duration::from_secs(5), runtime.exec_sync(request));
            let o =
                exec::kill_descendants_on_timeout(&id.0, Duration::from_secs(timeout.as_secs().max(1)), answer).await?;
            Ok(ExecOutput { code: o.exit_code, stdout: o.stdout, stderr: o.stderr })
        }
        .boxed()
    }

    fn exec<'a>(&'a self, id: &'a ContainerId, command: &'a [String], io: SessionIo) -> Call<'a, Session> {
        async move {
            let request = proto::ExecRequest {
                container_id: id.0.clone(),
                cmd: command.to_vec(),
                tty: io.tty,
                stdin: io.stdin,
                stdout: io.stdout,
                stderr: io.stderr && !io.tty,
            };
            let watch = io.stdin.then(|| self.ended.watch(id, self));
            let session = stream::session(&call(REQUEST_TIMEOUT, self.runtime().exec(request)).await?.url, io).await?;
            Ok(match watch {
                Some(watch) => watch.attach_to(session),
                None => session,
            })
        }
        .boxed()
    }

    fn attach<'a>(&'a self, id: &'a ContainerId, io: SessionIo) -> Call<'a, Session> {
        async move {
            let request = proto::AttachRequest {
                container_id: id.0.clone(),
                stdin: io.stdin,
                tty: io.tty,
                stdout: io.stdout,
                stderr: io.stderr && !io.tty,
            };
            stream::session(&call(REQUEST_TIMEOUT, self.runtime().attach(request)).await?.url, io).await
        }
        .boxed()
    }

    fn port_forward<'a>(&'a self, id: &'a SandboxId, port: u16) -> Call<'a, PortForward> {
        async move {
            let request = proto::PortForwardRequest { pod_sandbox_id: id.0.clone(), port: vec![i32::from(port)] };
            stream::port_forward(&call(REQUEST_TIMEOUT, self.runtime().port_forward(request)).await?.url, id, port)
                .await
        }
        .boxed()
    }

    fn image<'a>(&'a self, image: ImageSpec<'a>) -> Call<'a, Option<Image>> {
        let request = image_request(image);
        async { Ok(call(REQUEST_TIMEOUT, self.images().image_status(request)).await?.image.map(convert::image)) }
            .boxed()
    }

    fn image_stop_signal<'a>(&'a self, image: &'a str) -> Call<'a, Option<StopSignal>> {
        let request = proto::ImageRequest { verbose: true, ..image_request(image.into()) };
        async {
            let answer = call(REQUEST_TIMEOUT, self.images().image_status(request)).await?;
            Ok(answer.info.get("info").and_then(|info| convert::image_stop_signal(info)))
        }
        .boxed()
    }

    fn pull_image<'a>(&'a self, image: ImageSpec<'a>, auth: Option<&'a RegistryAuth>) -> Call<'a, String> {
        let auth = auth.map(|a| proto::AuthConfig {
            username: a.username.clone(),
            password: a.password.clone(),
            server_address: a.server_address.clone(),
            identity_token: a.identity_token.clone(),
            registry_token: a.registry_token.clone(),
        });
        let request = proto::PullImageRequest { image: Some(image_spec(image)), auth };
        // A large image over a slow connection may take long.
        async { Ok(call(Duration::from_secs(3600), self.images().pull_image(request)).await?.image_ref) }.boxed()
    }

    fn images(&self) -> Call<'_, Vec<Image>> {
        async {
            let images = call(REQUEST_TIMEOUT, CriRuntime::images(self).list_images(proto::Empty {})).await?.images;
            Ok(images.into_iter().map(convert::image).collect())
        }
        .boxed()
    }

    fn image_fs(&self) -> Call<'_, Option<PathBuf>> {
        async {
            let info = call(REQUEST_TIMEOUT, CriRuntime::images(self).image_fs_info(proto::Empty {})).await?;
            let found = info.image_filesystems.into_iter().find_map(|fs| fs.fs_id);
            Ok(found.map(|id| PathBuf::from(id.mountpoint)))
        }
        .boxed()
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> Call<'a, ()> {
        let request = image_request(image.into());
        async { ignore_not_found(call(REQUEST_TIMEOUT, CriRuntime::images(self).remove_image(request)).await) }.boxed()
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        events::follow(self.channel.clone(), self.ended.clone())
    }
}
