//! Local storage eviction (`localStorageEviction`).

use super::{DiskUsage, IMMEDIATE_GRACE_SECONDS, PodUsage, message::amount, ranking::local_volumes};
use crate::Eviction;
use api::{
    quantity::Amount,
    resources::{self, ResourceField},
};
use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};

/// Resource name of the limits.
const STORAGE: &str = "ephemeral-storage";

/// Returns the eviction of a Pod that exceeds a local storage limit: an `emptyDir` its `sizeLimit`, the Pod the sum of
/// its limits, or a container its own limit. `split_disks` means that images have a separate file system.
#[must_use]
pub fn local_storage_eviction(pod: &Pod, usage: &PodUsage, split_disks: bool) -> Option<Eviction> {
    let spec = pod.spec.as_ref().filter(|_| !api::pod::is_critical(pod))?;
    let message = check_empty_dirs(spec, usage)
        .or_else(|| check_pod(pod, spec, usage, split_disks))
        .or_else(|| check_containers(spec, usage, split_disks))?;
    Some(Eviction {
        reason: "Evicted".to_owned(),
        message,
        grace_seconds: Some(IMMEDIATE_GRACE_SECONDS),
        ..Eviction::default()
    })
}

/// Returns whether a Pod has local storage limits, so that its usage must be measured.
#[must_use]
pub fn has_local_storage_limits(spec: &PodSpec) -> bool {
    let sized = |v: &Volume| v.empty_dir.as_ref().is_some_and(|e| e.size_limit.is_some());
    spec.volumes.iter().flatten().any(sized)
        || resources::pod_resources(spec, ResourceField::Limits).contains_key(STORAGE)
}

fn check_empty_dirs(spec: &PodSpec, usage: &PodUsage) -> Option<String> {
    spec.volumes.iter().flatten().find_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let (limit, limit_text) = amount(Some(&limit.0));
        let used = Amount::units(usage.volumes.get(&volume.name)?.bytes);
        let exceeded = limit > Amount::ZERO && used > limit;
        exceeded.then(|| format!("Usage of EmptyDir volume {:?} exceeds the limit {limit_text:?}. ", volume.name))
    })
}

fn check_pod(pod: &Pod, spec: &PodSpec, usage: &PodUsage, split_disks: bool) -> Option<String> {
    let limit = resources::pod_resources(spec, ResourceField::Limits).get(STORAGE).copied()?;
    let containers = usage.containers.iter().map(|c| container_usage(c, split_disks));
    let used = containers.fold(local_volumes(usage, pod), DiskUsage::plus);
    // A sum has the format of its first summand.
    let mut limits =
        api::pod::containers(spec).filter_map(|(_, c)| c.resources.as_ref()?.limits.as_ref()?.get(STORAGE));
    let binary = limits.next().is_none_or(|q| q.0.ends_with('i'));
    let limit_text = if binary { limit.to_binary_quantity().0 } else { limit.to_quantity().0 };
    let exceeded = Amount::units(used.bytes) > limit;
    exceeded.then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit_text}. "))
}

fn check_containers(spec: &PodSpec, usage: &PodUsage, split_disks: bool) -> Option<String> {
    usage.containers.iter().find_map(|stats| {
        let limits = spec.containers.iter().find(|c| c.name == stats.name)?.resources.as_ref()?.limits.as_ref()?;
        let (limit, limit_text) = amount(Some(&limits.get(STORAGE)?.0));
        let used = Amount::units(container_usage(stats, split_disks).bytes);
        let exceeded = limit > Amount::ZERO && used > limit;
        exceeded
            .then(|| format!("Container {} exceeded its local ephemeral storage limit {limit_text:?}. ", stats.name))
    })
}

fn container_usage(container: &super::ContainerUsage, split_disks: bool) -> DiskUsage {
    let rootfs = container.rootfs.filter(|_| !split_disks).unwrap_or_default();
    container.logs.unwrap_or_default().plus(rootfs)
}
