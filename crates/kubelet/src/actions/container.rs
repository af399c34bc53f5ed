//! Creation and start of containers.

use super::{
    ActionError, UnknownContainerError,
    ensure_image::{self, ImageVolumeError},
    mounts::{self, ContainerMountError},
    oom_score,
    sandbox::{self, SandboxConfigError},
    security::{self, SecurityContextError},
};
use crate::{
    PodNetwork, Shared,
    cgroup::cpu_conversion,
    env_vars::{EnvVarError, make_environment_variables},
    log_rotation, logs,
    network_readiness::NetworkNotReadyError,
    object_cache::ObjectCache,
    os_error::PathError,
    pods,
    volumes::make_log_dir,
};
use api::{feature_gates::Gate, quantity::Amount};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, PodSpec};
use lifecycle::{
    ContainerEvent, ContainerExit, EventKind, Pod, PodEvent, PodLifecycleEvent, RuntimeImage, StartFailureStage,
};
use runtime::{
    ContainerConfig, ContainerId, ContainerState, ContainerStatus, LinuxResources, RuntimeError, SandboxConfig,
    SandboxId, StopSignal,
};

/// The configuration of a container cannot be created.
#[derive(Debug, thiserror::Error)]
enum ContainerConfigError {
    #[error(transparent)]
    UnknownContainer(#[from] UnknownContainerError),
    #[error(transparent)]
    EnvVar(#[from] EnvVarError),
    #[error(transparent)]
    ImageVolume(#[from] ImageVolumeError),
    #[error(transparent)]
    LogDirectory(#[from] PathError),
    #[error(transparent)]
    Mount(#[from] ContainerMountError),
    #[error(transparent)]
    SecurityContext(#[from] SecurityContextError),
    #[error(transparent)]
    Sandbox(#[from] SandboxConfigError),
}

pub(super) async fn start(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    attempt: u32,
    image_ref: &str,
    sandbox_id: &str,
) -> Result<Vec<ContainerEvent>, ActionError> {
    let failed = |stage, message: String| Ok(vec![ContainerEvent::StartFailed { stage, message }]);
    let (config, sandbox_config) = match configs(shared, pod, name, attempt, image_ref).await {
        Ok(configs) => configs,
        Err(error) => return failed(StartFailureStage::Config, error.to_string()),
    };
    let sandbox_id = SandboxId(sandbox_id.to_owned());
    let create = async || shared.runtime.create_container(&sandbox_id, &config, &sandbox_config).await;
    let mut was_started = false;
    // Creating a container runs no process: the network may become ready meanwhile.
    let (created, network) = tokio::join!(create(), wait_network_ready(shared, pod, &sandbox_id));
    network?;
    let created = match created {
        Err(RuntimeError::AlreadyExists(message)) => match find_previous_attempt(shared, pod, name, attempt).await? {
            PreviousAttempt::Started(id) => {
                was_started = true;
                Ok(id)
            }
            PreviousAttempt::Removed => create().await,
            PreviousAttempt::Lost(status) => return Ok(lost_container_events(*status, shared.now())),
            PreviousAttempt::None => Err(RuntimeError::AlreadyExists(message)),
        },
        created => created,
    };
    let id = match created {
        Ok(id) => id,
        Err(error) => return failed(StartFailureStage::Create, error.to_string()),
    };
    let status = shared.runtime.container(&id).await.ok();
    let stop_signal = stop_signal(shared, &config, status.as_ref()).await.map(|signal| signal.to_string());
    let image = status.map(runtime_image).unwrap_or_default();
    let mut facts = vec![ContainerEvent::Created { id: id.0.clone(), attempt, image, stop_signal }];
    let start_result = match was_started {
        true => Err(RuntimeError::AlreadyExists(format!("{name} was started before"))),
        false => start_in_cgroup(shared, pod, &id).await,
    };
    facts.extend(start_events(shared, pod, id, start_result).await);
    Ok(facts)
}

/// Starts a created container. Its Pod's cgroup may be gone since the sandbox was created (`systemctl stop`).
async fn start_in_cgroup(shared: &Shared, pod: &Pod, id: &ContainerId) -> Result<(), RuntimeError> {
    let old_pod = || pod.with_allocation(&pod.cgroup_allocation());
    let ensured = shared.cgroups.ensure(old_pod, pod.object()).await;
    ensured.map_err(|error| RuntimeError::Failed(error.to_string()))?;
    shared.runtime.start_container(id).await
}

/// Waits until the network of a Pod is ready; until then no container starts (upstream's `NetworkNotReady`).
async fn wait_network_ready(shared: &Shared, pod: &Pod, sandbox: &SandboxId) -> Result<(), NetworkNotReadyError> {
    let Some(readiness) = shared.network_readiness.get() else { return Ok(()) };
    let network = PodNetwork { pod: pod.object().clone(), sandbox: sandbox.0.clone(), ips: pod.ips().to_vec() };
    readiness.wait(network).await.inspect_err(|error| {
        let event = PodEvent::new(EventKind::Warning, "NetworkNotReady", error.to_string());
        shared.recorder.record(pod.object(), event);
    })
}

/// Returns the runtime's image names of a container.
pub(crate) fn runtime_image(status: ContainerStatus) -> RuntimeImage {
    RuntimeImage { name: status.image, id: status.image_ref, spec: status.spec_image }
}

/// Returns the events of a start. The container's state in the runtime counts, not the response to the request.
async fn start_events(
    shared: &Shared,
    pod: &Pod,
    id: ContainerId,
    start_result: Result<(), RuntimeError>,
) -> Vec<ContainerEvent> {
    let status = shared.runtime.container(&id).await.ok();
    let state = status.as_ref().map(|status| status.state);
    let at = status.as_ref().and_then(|status| status.started_at).unwrap_or_else(|| shared.now());
    let started = ContainerEvent::Started { id: id.0.clone(), at };
    let ended = status.filter(|status| status.state == ContainerState::Exited);
    let ended = match ended {
        Some(status) => {
            Some(ContainerEvent::Exited { id: id.0, exit: logs::container_exit(shared, pod, &status).await })
        }
        None => None,
    };
    match (start_result, ended) {
        // A container that exited at once may have exited before its start was observed.
        (Ok(()), ended) => [started].into_iter().chain(ended).collect(),
        // The runtime keeps a container that failed to start as exited with code 128, StartError.
        (Err(_), Some(ended)) => vec![ended],
        // The request succeeded, but its response was lost.
        (Err(_), None) if state == Some(ContainerState::Running) => vec![started],
        (Err(error), None) => {
            vec![ContainerEvent::StartFailed { stage: StartFailureStage::Start, message: error.to_string() }]
        }
    }
}

/// Returns the events of a container that the runtime lost during its start: its process may have run.
fn lost_container_events(status: ContainerStatus, now: Timestamp) -> Vec<ContainerEvent> {
    let exit = ContainerExit {
        code: logs::KILLED,
        reason: "ContainerStatusUnknown".to_owned(),
        message: "The container runtime lost the container at its start".to_owned(),
        started_at: Some(status.created_at),
        finished_at: now,
    };
    let (id, attempt) = (status.id.0.clone(), status.attempt);
    let created = ContainerEvent::Created { id: id.clone(), attempt, image: runtime_image(status), stop_signal: None };
    vec![created, ContainerEvent::Exited { id, exit }]
}

/// Returns the effective stop signal (KEP-4960): the runtime's, else the spec's, the image's, or the default. `None` while the
/// feature is disabled.
async fn stop_signal(
    shared: &Shared,
    config: &ContainerConfig,
    status: Option<&ContainerStatus>,
) -> Option<StopSignal> {
    if !shared.options.policy.gates.enabled(Gate::ContainerStopSignals) {
        return None;
    }
    if let Some(signal) = status.and_then(|c| c.stop_signal).or(config.stop_signal) {
        return Some(signal);
    }
    let of_image = shared.runtime.image_stop_signal(&config.image_ref).await.ok()?;
    Some(of_image.unwrap_or(StopSignal::DEFAULT))
}

/// Container that an earlier, unreported attempt has created.
enum PreviousAttempt {
    /// It runs, or has run.
    Started(ContainerId),
    /// It was created but not started; it is removed.
    Removed,
    /// Its process ran, and the runtime lost its state; it is removed.
    Lost(Box<ContainerStatus>),
    None,
}

/// Finds the container of an earlier attempt, and removes it if it never ran: it may be half-created, which would fail every
/// later start.
///
/// # Errors
/// Fails while the runtime refuses to remove it, for example during a start that an earlier kubelet requested.
async fn find_previous_attempt(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    attempt: u32,
) -> Result<PreviousAttempt, RuntimeError> {
    let all = shared.runtime.containers().await?;
    let Some(found) = all.into_iter().find(|c| c.uid == pod.uid() && c.name == name && c.attempt == attempt) else {
        return Ok(PreviousAttempt::None);
    };
    let status = shared.runtime.container(&found.id).await?;
    let has_run = match status.state {
        ContainerState::Running => true,
        ContainerState::Exited => !logs::container_exit(shared, pod, &status).await.never_ran(),
        ContainerState::Created | ContainerState::Unknown => false,
    };
    if has_run {
        return Ok(PreviousAttempt::Started(found.id));
    }
    shared.runtime.remove_container(&found.id).await?;
    // A created container has a known state: the runtime loses only the state of a container during its start.
    let is_lost = status.state == ContainerState::Unknown;
    Ok(if is_lost { PreviousAttempt::Lost(Box::new(status)) } else { PreviousAttempt::Removed })
}

/// Returns the exit event of a stopped container.
pub(super) async fn exit_event(shared: &Shared, pod: &Pod, id: &str) -> Result<PodLifecycleEvent, ActionError> {
    let status = shared.runtime.container(&ContainerId(id.to_owned())).await;
    match status {
        Ok(status) if status.state == ContainerState::Exited => {
            let exit = logs::container_exit(shared, pod, &status).await;
            Ok(PodLifecycleEvent::Container {
                container: status.name,
                event: ContainerEvent::Exited { id: id.to_owned(), exit },
            })
        }
        Ok(_) => Err(ActionError::StillRunning),
        Err(RuntimeError::NotFound(_)) => {
            let name = pod.name_of(id).unwrap_or_default();
            Ok(PodLifecycleEvent::Container { container: name, event: ContainerEvent::Lost { id: id.to_owned() } })
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the log and termination message of a dead container, before the container, so that a failure is retried.
pub(super) async fn remove_logs(shared: &Shared, pod: &Pod, id: &str) -> Result<(), ActionError> {
    let status = match shared.runtime.container(&ContainerId(id.to_owned())).await {
        Ok(status) => status,
        Err(RuntimeError::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let log = logs::log_path(shared, pod, &status.name, status.attempt);
    log_rotation::remove(&log).map_err(|source| ActionError::RemoveLog { path: log, source })?;
    let message = shared.paths.termination_message(pod.uid(), &status.name, status.attempt);
    match std::fs::remove_file(&message) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(ActionError::RemoveLog { path: message, source })
        }
        _ => Ok(()),
    }
}

/// Returns the configurations of a container and its sandbox.
async fn configs(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    attempt: u32,
    image_ref: &str,
) -> Result<(ContainerConfig, SandboxConfig), ContainerConfigError> {
    let config = config(shared, pod, name, attempt, image_ref).await?;
    let (sandbox_config, _) = sandbox::config(shared, pod, 0)?;
    Ok((config, sandbox_config))
}

async fn config(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    attempt: u32,
    image_ref: &str,
) -> Result<ContainerConfig, ContainerConfigError> {
    let pod_spec = pods::spec(pod);
    let spec = super::container_spec(pod, name)?;
    let env = make_environment_variables(shared, pod, spec, &mut ObjectCache::new(shared, pod.namespace())).await?;
    let images = ensure_image::image_volume_mounts(shared, pod, spec).await?;
    let supports_recursive = mounts::supports_recursive_read_only(shared, pod, spec).await;
    let expand = |list: &Option<Vec<String>>| list.iter().flatten().map(|s| env.expand(s)).collect();
    make_log_dir(&shared.paths.pod_logs(pod.object()).join(name))?;
    Ok(ContainerConfig {
        name: name.to_owned(),
        attempt,
        image_ref: image_ref.to_owned(),
        image: spec.image.clone().unwrap_or_default(),
        command: expand(&spec.command),
        args: expand(&spec.args),
        working_dir: spec.working_dir.clone().unwrap_or_default(),
        mounts: mounts::container_mounts(shared, pod, spec, attempt, &env, &images, supports_recursive)?,
        log_path: format!("{name}/{attempt}.log").into(),
        stdin: spec.stdin == Some(true),
        stdin_once: spec.stdin_once == Some(true),
        tty: spec.tty == Some(true),
        resources: resources(shared, pod_spec, spec),
        security: security::effective_security_context(shared, pod, spec).await?,
        env: env.into_pairs(),
        stop_signal: spec_stop_signal(shared, spec),
        ..ContainerConfig::default()
    })
}

/// Returns the stop signal in the spec, if the feature is enabled.
fn spec_stop_signal(shared: &Shared, spec: &Spec) -> Option<StopSignal> {
    let stop_signal = spec.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref());
    stop_signal.filter(|_| shared.options.policy.gates.enabled(Gate::ContainerStopSignals)).and_then(StopSignal::parse)
}

/// Converts requests and limits to cgroup values (upstream's `pkg/kubelet/cm/helpers_linux.go`).
///
/// A container without a limit gets the Pod-level limit (KEP-2837).
pub(super) fn resources(shared: &Shared, pod: &PodSpec, spec: &Spec) -> LinuxResources {
    let (requests, limits) = (api::resources::ResourceField::Requests, api::resources::ResourceField::Limits);
    let pod_limits = api::resources::amounts(pod.resources.as_ref().and_then(|r| r.limits.as_ref()));
    let amount = |side, name: &str| {
        let container_amount = api::resources::container_resources(spec, side).get(name).copied();
        container_amount.or_else(|| pod_limits.get(name).copied().filter(|_| side == limits))
    };
    let config = &shared.options.config;
    let period = i64::try_from(config.cpu_cfs_quota_period.as_micros()).unwrap_or(cpu_conversion::DEFAULT_PERIOD);
    let limit = amount(limits, "cpu").filter(|cpu| config.cpu_cfs_quota && !cpu.is_zero());
    LinuxResources {
        cpu_shares: cpu_conversion::shares(amount(requests, "cpu").or_else(|| cpu_limit(spec)).unwrap_or_default()),
        cpu_period: limit.map_or(0, |_| period),
        cpu_quota: limit.map_or(0, |cpu| cpu_conversion::quota(cpu, period)),
        memory_limit: amount(limits, "memory").map_or(0, Amount::value),
        oom_score_adj: oom_score::oom_score_adjust(
            pod,
            spec,
            shared.node_resources.capacity.get("memory").copied().unwrap_or_default(),
        ),
        unified: shared.cgroups.container_files(),
        ..LinuxResources::default()
    }
}

/// Returns the CPU limit, which is the default of a missing request.
fn cpu_limit(spec: &Spec) -> Option<Amount> {
    api::resources::container_resources(spec, api::resources::ResourceField::Limits).get("cpu").copied()
}
