//! In-place resize (KEP-1287): decision of the node, and application of allocated resources to cgroups and containers.

use super::{UnknownContainerError, container};
use crate::{Shared, cgroup::CgroupError, pods};
use api::{
    quantity::Amount,
    resources::{self, Amounts, ResourceField},
};
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodSpec, ResourceRequirements};
use lifecycle::{Pod, PodLifecycleEvent};
use runtime::{ContainerId, RuntimeError};

/// The allocated resources could not be applied.
#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    MemoryLimits(#[from] MemoryLimitsError),
    #[error(transparent)]
    UnknownContainer(#[from] UnknownContainerError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Memory limit below the current usage, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum MemoryLimitError {
    #[error("attempting to set pod memory limit ({limit}) below current usage ({usage})")]
    Pod { limit: i64, usage: i64 },
    #[error("attempting to set container {container:?} memory limit ({limit}) below current usage ({usage})")]
    Container { container: String, limit: i64, usage: i64 },
}

/// All memory limits of a Pod that are below the current usage.
#[derive(Debug, thiserror::Error)]
#[error("cannot decrease memory limits: {}", aggregate(.0))]
struct MemoryLimitsError(Vec<MemoryLimitError>);

/// Joins errors as Go's aggregated errors.
fn aggregate(errors: &[MemoryLimitError]) -> String {
    match errors {
        [one] => one.to_string(),
        many => format!("[{}]", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn requests(pod: &ApiPod) -> Amounts {
    pod.spec.as_ref().map(|spec| resources::pod_resources(spec, ResourceField::Requests)).unwrap_or_default()
}

/// Decides whether the node has the requested resources; if granted, they are reserved from now on
/// (`handlePodResourcesResize`).
pub(super) fn decide(shared: &Shared, pod: &Pod, generation: i64) -> PodLifecycleEvent {
    let desired = requests(&pod.desired());
    let decision = shared.pods.resize(pod.uid(), |others| {
        let mut used = Amounts::new();
        others.iter().for_each(|other| resources::add_resource_list(&mut used, &requests(other)));
        lifecycle::decide_resize(&desired, &used, &shared.node_resources.allocatable)
    });
    PodLifecycleEvent::ResizeDecided { generation, decision }
}

/// Applies the allocated resources to the Pod's cgroup and its containers. The Pod's cgroup grows before its containers and
/// shrinks after them. A memory limit is not set below the current usage (upstream's `doPodResizeAction`).
pub(super) async fn actuate(shared: &Shared, pod: &Pod) -> PodLifecycleEvent {
    let result = async {
        let old_pod = pod.with_allocation(&pod.cgroup_allocation());
        shared.cgroups.grow(&old_pod, pod.object()).await?;
        super::update_burstable_shares(shared, None).await;
        validate_memory_limits(shared, pod, &old_pod)?;
        let mut ids = Vec::new();
        for (name, id) in pod.to_update() {
            let spec = super::container_spec(pod, &name)?;
            let changed = container::resources(shared, pods::spec(pod), spec);
            let id = ContainerId(id);
            shared.runtime.update_resources(&id, &changed).await?;
            ids.push(id.0);
        }
        shared.cgroups.create(pod.object()).await?;
        Ok::<_, ResizeError>(ids)
    };
    match result.await {
        Ok(ids) => PodLifecycleEvent::ResourcesActuated { ids, allocation: pod.allocation() },
        Err(error) => PodLifecycleEvent::ResourcesFailed { message: error.to_string() },
    }
}

/// Returns the memory limit in bytes.
fn memory_limit(resources: Option<&ResourceRequirements>) -> Option<i64> {
    let limits = resources::amounts(resources.and_then(|r| r.limits.as_ref()));
    limits.get("memory").copied().map(Amount::value).filter(|bytes| *bytes > 0)
}

fn validate_memory_limits(shared: &Shared, pod: &Pod, old_pod: &ApiPod) -> Result<(), ResizeError> {
    let mut errors = Vec::new();
    let below_usage = |limit: Option<i64>, had: Option<i64>, usage: Option<i64>| {
        let shrinks = limit.is_some_and(|new| had.is_none_or(|old| new < old));
        limit.zip(usage).filter(|(limit, usage)| shrinks && limit < usage)
    };
    let pod_memory_limit =
        |pod: &ApiPod| pod.spec.as_ref().and_then(|spec: &PodSpec| shared.cgroups.memory_limit(spec));
    let (new, old) = (pod_memory_limit(pod.object()), pod_memory_limit(old_pod));
    if let Some((limit, usage)) = below_usage(new, old, shared.cgroups.memory_usage(pod.object(), None)) {
        errors.push(MemoryLimitError::Pod { limit, usage });
    }
    for (name, id) in pod.to_update() {
        let new = memory_limit(super::container_spec(pod, &name)?.resources.as_ref());
        let old = memory_limit(Some(&pod.actual_resources(&name)));
        if let Some((limit, usage)) = below_usage(new, old, shared.cgroups.memory_usage(pod.object(), Some(&id))) {
            errors.push(MemoryLimitError::Container { container: name, limit, usage });
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(MemoryLimitsError(errors).into()) }
}
