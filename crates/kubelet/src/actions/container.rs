//! Creating and starting a container.

use super::{image, mounts, oom_score, sandbox, security};
use crate::{
    PodNetwork, Shared, cgroup::values, environment::environment, log_rotation, logs, objects::Objects, pods,
    volumes::make_log_dir,
};
use api::{feature_gates::Gate, quantity::Amount};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, PodSpec};
use lifecycle::{ContainerExit, ContainerFact, Event, EventKind, Pod, PodEvent, RuntimeImage, StartStage};
use runtime::{
    ContainerConfig, ContainerId, ContainerState, ContainerStatus, LinuxResources, RuntimeError, SandboxId, StopSignal,
};

pub(super) async fn start(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    attempt: u32,
    image_ref: &str,
    sandbox_id: &str,
) -> Result<Vec<ContainerFact>, String> {
    let failed = |stage, message: String| Ok(vec![ContainerFact::StartFailed { stage, message }]);
    let config = match config(shared, pod, name, attempt, image_ref).await {
        Ok(config) => config,
        Err(message) => return failed(StartStage::Config, message),
    };
    let sandbox_id = SandboxId(sandbox_id.to_owned());
    let sandbox_config = match sandbox::config(shared, pod, 0) {
        Ok((config, _)) => config,
        Err(message) => return failed(StartStage::Config, message),
    };
    let create = async || shared.runtime.create_container(&sandbox_id, &config, &sandbox_config).await;
    let mut begun = false;
    // Creating a container runs nothing of it: the network becomes ready meanwhile.
    let (created, network) = tokio::join!(create(), network_ready(shared, pod, &sandbox_id));
    network?;
    let created = match created {
        Err(RuntimeError::AlreadyExists(message)) => {
            match earlier(shared, pod, name, attempt).await.map_err(|e| e.to_string())? {
                Earlier::Begun(id) => {
                    begun = true;
                    Ok(id)
                }
                Earlier::Removed => create().await,
                Earlier::Lost(status) => return Ok(lost(*status, shared.now())),
                Earlier::None => Err(RuntimeError::AlreadyExists(message)),
            }
        }
        created => created,
    };
    let id = match created {
        Ok(id) => id,
        Err(error) => return failed(StartStage::Create, error.to_string()),
    };
    let made = shared.runtime.container(&id).await.ok();
    let stop_signal = stop_signal(shared, &config, made.as_ref()).await.map(|signal| signal.to_string());
    let image = made.map(made_of).unwrap_or_default();
    let mut facts = vec![ContainerFact::Created { id: id.0.clone(), attempt, image, stop_signal }];
    let asked = match begun {
        true => Err(RuntimeError::AlreadyExists(format!("{name} was started before"))),
        false => shared.runtime.start_container(&id).await,
    };
    facts.extend(started(shared, pod, id, asked).await);
    Ok(facts)
}

/// Waits for the network of a Pod. While it is not ready, no container starts (upstream's `NetworkNotReady`).
async fn network_ready(shared: &Shared, pod: &Pod, sandbox: &SandboxId) -> Result<(), String> {
    let Some(readiness) = shared.network_readiness.get() else { return Ok(()) };
    let network = PodNetwork { pod: pod.object().clone(), sandbox: sandbox.0.clone(), ips: pod.ips().to_vec() };
    readiness.wait(network).await.map_err(|error| {
        let message = format!("network is not ready: {error}");
        shared.recorder.record(pod.object(), PodEvent::new(EventKind::Warning, "NetworkNotReady", message.clone()));
        message
    })
}

/// The runtime's words for the image of a container.
pub(crate) fn made_of(status: ContainerStatus) -> RuntimeImage {
    RuntimeImage { name: status.image, id: status.image_ref, spec: status.spec_image }
}

/// What came of a start. Whatever was answered: what the runtime shows is what counts.
async fn started(shared: &Shared, pod: &Pod, id: ContainerId, asked: Result<(), RuntimeError>) -> Vec<ContainerFact> {
    let status = shared.runtime.container(&id).await.ok();
    let state = status.as_ref().map(|status| status.state);
    let at = status.as_ref().and_then(|status| status.started_at).unwrap_or_else(|| shared.now());
    let started = ContainerFact::Started { id: id.0.clone(), at };
    let ended = status.filter(|status| status.state == ContainerState::Exited);
    let ended = match ended {
        Some(status) => Some(ContainerFact::Exited { id: id.0, exit: logs::exit(shared, pod, &status).await }),
        None => None,
    };
    match (asked, ended) {
        // One that ended at once may have ended before anybody listened.
        (Ok(()), ended) => [started].into_iter().chain(ended).collect(),
        // The runtime keeps one that it could not start as one that ended with 128, StartError.
        (Err(_), Some(ended)) => vec![ended],
        // It was the answer that was lost.
        (Err(_), None) if state == Some(ContainerState::Running) => vec![started],
        (Err(error), None) => {
            vec![ContainerFact::StartFailed { stage: StartStage::Start, message: error.to_string() }]
        }
    }
}

/// The runtime died at the start of a container and knows nothing of its process any more: whatever that did, it did it.
fn lost(status: ContainerStatus, now: Timestamp) -> Vec<ContainerFact> {
    let exit = ContainerExit {
        code: logs::KILLED,
        reason: "ContainerStatusUnknown".to_owned(),
        message: "The container runtime lost the container at its start".to_owned(),
        started_at: Some(status.created_at),
        finished_at: now,
    };
    let (id, attempt) = (status.id.0.clone(), status.attempt);
    let created = ContainerFact::Created { id: id.clone(), attempt, image: made_of(status), stop_signal: None };
    vec![created, ContainerFact::Exited { id, exit }]
}

/// What stops this container (KEP-4960): the runtime says so if it knows, else it is the Pod's signal, the image's, or the
/// default. Nobody is asked while the feature is off.
async fn stop_signal(shared: &Shared, config: &ContainerConfig, made: Option<&ContainerStatus>) -> Option<StopSignal> {
    if !shared.options.policy.gates.enabled(Gate::ContainerStopSignals) {
        return None;
    }
    if let Some(signal) = made.and_then(|c| c.stop_signal).or(config.stop_signal) {
        return Some(signal);
    }
    let of_image = shared.runtime.image_stop_signal(&config.image_ref).await.ok()?;
    Some(of_image.unwrap_or(StopSignal::DEFAULT))
}

/// What became of the container that an earlier try made and could not tell of.
enum Earlier {
    /// It runs, or has run.
    Begun(ContainerId),
    /// It was not started, or its start was given up, for nobody waited for it any more; it is gone.
    Removed,
    /// Its process ran, and the runtime lost sight of it; it is gone.
    Lost(Box<ContainerStatus>),
    None,
}

/// One that never ran is removed, so that another can be made: a runtime that died at its start, too, may have left
/// half of it, over which every later start would fail.
///
/// # Errors
/// While the runtime does not let it go, for example because it is still at the start that an earlier kubelet asked for.
async fn earlier(shared: &Shared, pod: &Pod, name: &str, attempt: u32) -> Result<Earlier, RuntimeError> {
    let all = shared.runtime.containers().await?;
    let Some(found) = all.into_iter().find(|c| c.uid == pod.uid() && c.name == name && c.attempt == attempt) else {
        return Ok(Earlier::None);
    };
    let status = shared.runtime.container(&found.id).await?;
    let ran = match status.state {
        ContainerState::Running => true,
        ContainerState::Exited => !logs::exit(shared, pod, &status).await.never_ran(),
        ContainerState::Created | ContainerState::Unknown => false,
    };
    if ran {
        return Ok(Earlier::Begun(found.id));
    }
    shared.runtime.remove_container(&found.id).await?;
    // What was made and not let go is no secret to a runtime: it has lost one only whose process was on its way.
    let is_lost = status.state == ContainerState::Unknown;
    Ok(if is_lost { Earlier::Lost(Box::new(status)) } else { Earlier::Removed })
}

/// How a container that was stopped ended.
pub(super) async fn exit_of(shared: &Shared, pod: &Pod, id: &str) -> Result<Event, String> {
    let status = shared.runtime.container(&ContainerId(id.to_owned())).await;
    match status {
        Ok(status) if status.state == ContainerState::Exited => {
            let exit = logs::exit(shared, pod, &status).await;
            Ok(Event::Container { container: status.name, fact: ContainerFact::Exited { id: id.to_owned(), exit } })
        }
        Ok(_) => Err("the container runs on after it was stopped".to_owned()),
        Err(RuntimeError::NotFound(_)) => {
            let name = pod.name_of(id).unwrap_or_default();
            Ok(Event::Container { container: name, fact: ContainerFact::Lost { id: id.to_owned() } })
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Removes what a dead container has written: first the files, so that a try that fails is made again.
pub(super) async fn remove_logs(shared: &Shared, pod: &Pod, id: &str) -> Result<(), String> {
    let status = match shared.runtime.container(&ContainerId(id.to_owned())).await {
        Ok(status) => status,
        Err(RuntimeError::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let log = logs::path(shared, pod, &status.name, status.attempt);
    log_rotation::remove(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let message = shared.paths.termination_message(pod.uid(), &status.name, status.attempt);
    match std::fs::remove_file(&message) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", message.display())),
        _ => Ok(()),
    }
}

async fn config(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    attempt: u32,
    image_ref: &str,
) -> Result<ContainerConfig, String> {
    let pod_spec = pods::spec(pod);
    let spec = super::spec_of(pod, name)?;
    let env = environment(shared, pod, spec, &mut Objects::new(shared, pod.namespace())).await?;
    let images = image::of_volumes(shared, pod, spec).await?;
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
        mounts: mounts::of_container(shared, pod, spec, attempt, &env, &images)?,
        log_path: format!("{name}/{attempt}.log").into(),
        stdin: spec.stdin == Some(true),
        stdin_once: spec.stdin_once == Some(true),
        tty: spec.tty == Some(true),
        resources: resources(shared, pod_spec, spec),
        security: security::of_container(shared, pod, spec).await?,
        env: env.into_pairs(),
        stop_signal: own_signal(shared, spec),
        ..ContainerConfig::default()
    })
}

/// The Pod's own signal for a container, where the feature is on.
fn own_signal(shared: &Shared, spec: &Spec) -> Option<StopSignal> {
    let own = spec.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref());
    own.filter(|_| shared.options.policy.gates.enabled(Gate::ContainerStopSignals)).and_then(StopSignal::parse)
}

/// Requests and limits as the kernel takes them (upstream's `pkg/kubelet/cm/helpers_linux.go`).
///
/// Where a container has no limit of its own, that of the Pod as a whole is its limit (KEP-2837).
pub(super) fn resources(shared: &Shared, pod: &PodSpec, spec: &Spec) -> LinuxResources {
    let (requests, limits) = (api::resources::Side::Requests, api::resources::Side::Limits);
    let whole = api::resources::amounts(pod.resources.as_ref().and_then(|r| r.limits.as_ref()));
    let amount = |side, name: &str| {
        let own = api::resources::container(spec, side).get(name).copied();
        own.or_else(|| whole.get(name).copied().filter(|_| side == limits))
    };
    let config = &shared.options.config;
    let period = i64::try_from(config.cpu_cfs_quota_period.as_micros()).unwrap_or(values::PERIOD);
    let limit = amount(limits, "cpu").filter(|cpu| config.cpu_cfs_quota && !cpu.is_zero());
    LinuxResources {
        cpu_shares: values::shares(amount(requests, "cpu").or_else(|| own_cpu_limit(spec)).unwrap_or_default()),
        cpu_period: limit.map_or(0, |_| period),
        cpu_quota: limit.map_or(0, |cpu| values::quota(cpu, period)),
        memory_limit: amount(limits, "memory").map_or(0, Amount::value),
        oom_score_adj: oom_score::of(pod, spec, shared.machine.capacity.get("memory").copied().unwrap_or_default()),
        ..LinuxResources::default()
    }
}

/// A limit stands for a request that nobody made.
fn own_cpu_limit(spec: &Spec) -> Option<Amount> {
    api::resources::container(spec, api::resources::Side::Limits).get("cpu").copied()
}
