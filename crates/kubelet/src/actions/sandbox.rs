//! Pod sandboxes.

use crate::{
    Shared,
    deadline::within_deadline,
    dns::{self, ResolvConfError},
    etc_hosts::{FqdnTooLongError, PodHostname},
    pods,
    user_namespaces::{self, UserNamespaceError},
    volumes,
};
use api::pod::ContainerKind;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, core::Status};
use lifecycle::{EventKind, Pod, PodEvent, SandboxEvent, sysctls};
use runtime::{NamespaceMode, Namespaces, PortMapping, RuntimeError, SandboxConfig};

/// The configuration of a sandbox cannot be created.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxConfigError {
    #[error("Failed to prepare dynamic resources: {0}")]
    ResourceClaim(String),
    #[error(transparent)]
    RuntimeClass(#[from] RuntimeClassError),
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
    #[error(transparent)]
    Dns(#[from] ResolvConfError),
    #[error(transparent)]
    Hostname(#[from] FqdnTooLongError),
}

/// The RuntimeClass of a Pod cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuntimeClassError {
    /// With the message of the API server.
    #[error("{}", .0.message)]
    NotFound(Box<Status>),
    #[error("failed to lookup RuntimeClass {name}: {source}")]
    Lookup { name: String, source: kube::Error },
}

pub(super) fn namespaces(shared: &Shared, pod: &Pod) -> Result<Namespaces, UserNamespaceError> {
    let spec = pods::spec(pod);
    let node = |flag: Option<bool>, otherwise| if flag == Some(true) { NamespaceMode::Node } else { otherwise };
    let pid = if spec.share_process_namespace == Some(true) { NamespaceMode::Pod } else { NamespaceMode::Container };
    Ok(Namespaces {
        network: node(spec.host_network, NamespaceMode::Pod),
        pid: node(spec.host_pid, pid),
        ipc: node(spec.host_ipc, NamespaceMode::Pod),
        users: user_namespaces::id_mapping(shared, pod)?,
    })
}

/// Returns the sandbox configuration, and messages about exceeded DNS limits.
pub(super) fn config(
    shared: &Shared,
    pod: &Pod,
    attempt: u32,
) -> Result<(SandboxConfig, Vec<String>), SandboxConfigError> {
    let (spec, options) = (pods::spec(pod), &shared.options);
    let host_network = spec.host_network == Some(true);
    let hostname = PodHostname::new(spec, pod.name(), pod.namespace(), &options.config);
    let (dns, dns_warnings) = dns::pod_dns(spec, pod.namespace(), &options.config)?;
    let context = spec.security_context.clone().unwrap_or_default();
    let groups = context.fs_group.into_iter().chain(context.supplemental_groups.into_iter().flatten());
    let sysctls = context.sysctls.into_iter().flatten();
    let containers = api::pod::containers(spec).filter(|(kind, _)| *kind != ContainerKind::Init).map(|(_, c)| c);
    let ports = containers.flat_map(|c| c.ports.iter().flatten()).filter_map(|p| {
        Some(PortMapping {
            protocol: p.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            container_port: p.container_port.try_into().ok()?,
            host_port: p.host_port.filter(|h| *h > 0)?.try_into().ok()?,
            host_ip: p.host_ip.clone().unwrap_or_default(),
        })
    });
    let config = SandboxConfig {
        name: pod.name().to_owned(),
        namespace: pod.namespace().to_owned(),
        uid: pod.uid().to_owned(),
        attempt,
        hostname: if host_network { String::new() } else { hostname.hostname_in_pod(spec)? },
        log_directory: shared.paths.pod_logs(pod.object()),
        dns: Some(dns),
        port_mappings: if host_network { Vec::new() } else { ports.collect() },
        labels: pod.object().metadata.labels.clone().unwrap_or_default(),
        cgroup_parent: shared.cgroups.path(pod.object()),
        namespaces: namespaces(shared, pod)?,
        sysctls: sysctls.map(|s| (sysctls::normalized(&s.name), s.value)).collect(),
        run_as_user: context.run_as_user,
        // The CRI requires a user with a group, and the sandbox image has no user.
        run_as_group: context.run_as_group.filter(|_| context.run_as_user.is_some()),
        supplemental_groups: groups.collect(),
        privileged: is_privileged(pod),
        ..SandboxConfig::default()
    };
    Ok((config, dns_warnings))
}

/// Returns whether a container of the Pod is privileged, ephemeral ones included: the runtime compares with the sandbox's
/// configuration when it creates a container.
fn is_privileged(pod: &Pod) -> bool {
    let containers = api::pod::containers(pods::spec(pod)).map(|(_, c)| c.security_context.as_ref());
    let ephemeral = pods::spec(pod).ephemeral_containers.iter().flatten().map(|c| c.security_context.as_ref());
    containers.chain(ephemeral).flatten().any(|context| context.privileged == Some(true))
}

/// Returns the runtime handler of the Pod; empty for the default (upstream's `LookupRuntimeHandler`).
pub(super) async fn runtime_handler(shared: &Shared, pod: &Pod) -> Result<String, RuntimeClassError> {
    let Some(name) = pods::spec(pod).runtime_class_name.as_deref().filter(|name| !name.is_empty()) else {
        return Ok(String::new());
    };
    let api: Api<RuntimeClass> = Api::all(shared.client.clone());
    match within_deadline(api.get(name)).await {
        Ok(class) => Ok(class.handler),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(RuntimeClassError::NotFound(status)),
        Err(source) => Err(RuntimeClassError::Lookup { name: name.to_owned(), source }),
    }
}

/// Rejects resource claims: dynamic resource allocation is not supported.
fn reject_resource_claims(pod: &Pod) -> Result<(), SandboxConfigError> {
    match pods::spec(pod).resource_claims.iter().flatten().next() {
        Some(claim) => Err(SandboxConfigError::ResourceClaim(api::pod::unsatisfied_resource_claim(claim))),
        None => Ok(()),
    }
}

/// Returns the sandbox configuration with the runtime handler and the user namespace.
async fn prepare_config(
    shared: &Shared,
    pod: &Pod,
    attempt: u32,
) -> Result<(SandboxConfig, Vec<String>), SandboxConfigError> {
    reject_resource_claims(pod)?;
    let runtime_handler = runtime_handler(shared, pod).await?;
    user_namespaces::prepare(shared, pod, &runtime_handler).await?;
    let (config, dns_warnings) = config(shared, pod, attempt)?;
    Ok((SandboxConfig { runtime_handler, ..config }, dns_warnings))
}

pub(super) async fn create(shared: &Shared, pod: &Pod, attempt: u32) -> SandboxEvent {
    let failed = |message: String| SandboxEvent::Failed { message };
    let (config, dns_warnings) = match prepare_config(shared, pod, attempt).await {
        Ok(config) => config,
        Err(error) => return failed(error.to_string()),
    };
    for message in dns_warnings {
        shared.recorder.record(pod.object(), PodEvent::new(EventKind::Warning, "DNSConfigForming", message));
    }
    // A reboot unmounts tmpfs volumes.
    if attempt > 0
        && let Err(errors) = volumes::set_up(shared, pod).await
    {
        return failed(errors.to_string());
    }
    // A reboot removes the cgroups.
    if let Err(error) = shared.cgroups.create(pod.object()).await {
        return failed(error.to_string());
    }
    super::update_burstable_shares(shared, None).await;
    let id = match shared.sandbox_limiter.run(shared.runtime.run_sandbox(&config)).await {
        Ok(id) => id,
        Err(error) => {
            // A sandbox whose creation was not reported is found by a relist.
            if matches!(error, RuntimeError::AlreadyExists(_)) {
                shared.pods.request_relist();
            }
            return failed(error.to_string());
        }
    };
    if config.namespaces.network == NamespaceMode::Node {
        return SandboxEvent::Ready { id: id.0, attempt, ips: vec![shared.options.node_ip] };
    }
    match shared.runtime.sandbox(&id).await {
        Ok(status) => SandboxEvent::Ready { id: id.0, attempt, ips: status.ips },
        Err(error) => failed(error.to_string()),
    }
}
