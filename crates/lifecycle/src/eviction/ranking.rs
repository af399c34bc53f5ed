//! Eviction ranking of Pods (`rankMemoryPressure`, `rankDiskPressureFunc`).

use super::{DiskUsage, EvictionCandidate, IMMEDIATE_GRACE_SECONDS, MetThreshold, PodUsage, Resource, Signal, message};
use crate::Eviction;
use api::{
    pod::{is_critical, priority},
    quantity::Amount,
    resources::{self, ResourceField},
};
use k8s_openapi::api::core::v1::{Pod, Volume};
use std::cmp::Reverse;

/// Which parts of a Pod's disk usage count.
#[derive(Clone, Copy)]
struct FsStats {
    rootfs: bool,
    logs_and_volumes: bool,
}

/// Selects the Pod to evict, and its eviction: usage above requests first, then lower priority, then larger excess.
/// Critical Pods are never evicted.
///
/// `split_disks` means that images have a separate file system.
#[must_use]
pub fn select_victim<'a>(
    met_threshold: &MetThreshold,
    candidates: &'a [EvictionCandidate],
    split_disks: bool,
) -> Option<(&'a EvictionCandidate, Eviction)> {
    let evictable = candidates.iter().filter(|c| !is_critical(&c.pod));
    let first = evictable.min_by_key(|c| rank(met_threshold.threshold.signal, c, split_disks))?;
    let pod_grace = first.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let pod_grace = pod_grace.and_then(|seconds| u32::try_from(seconds).ok());
    let grace_seconds = if met_threshold.threshold.is_hard() {
        Some(IMMEDIATE_GRACE_SECONDS)
    } else {
        met_threshold
            .max_pod_grace_seconds
            .map(|max| pod_grace.map_or(max, |pod_grace| pod_grace.min(max)).max(IMMEDIATE_GRACE_SECONDS))
    };
    let (message, annotations) = message::eviction_message(met_threshold, &first.pod, first.usage.as_ref());
    Some((
        first,
        Eviction {
            reason: "Evicted".to_owned(),
            message,
            grace_seconds,
            disruption_target: true,
            disruption_message: None,
            annotations,
        },
    ))
}

/// Sort key, the smallest first: measured, within requests, priority, excess.
type Rank = (bool, bool, i32, Reverse<i64>);

fn rank(signal: Signal, candidate: &EvictionCandidate, split_disks: bool) -> Rank {
    let Some(pod_usage) = &candidate.usage else {
        return (false, false, priority(&candidate.pod), Reverse(0));
    };
    let resource = signal.resource();
    let usage = match resource {
        Resource::Memory => pod_usage.memory.unwrap_or(0),
        Resource::Pids => pod_usage.processes.unwrap_or(0),
        Resource::EphemeralStorage => disk_usage(pod_usage, &candidate.pod, fs_stats(signal, split_disks)).bytes,
        Resource::Inodes => disk_usage(pod_usage, &candidate.pod, fs_stats(signal, split_disks)).inodes,
    };
    let within = resource == Resource::Pids || usage <= request(&candidate.pod, resource.as_str());
    // Upstream also subtracts the storage request from inodes.
    let relative_to = match resource {
        Resource::Memory => request(&candidate.pod, "memory"),
        Resource::EphemeralStorage | Resource::Inodes => request(&candidate.pod, "ephemeral-storage"),
        Resource::Pids => 0,
    };
    (true, within, priority(&candidate.pod), Reverse(usage.saturating_sub(relative_to)))
}

fn request(pod: &Pod, name: &str) -> i64 {
    let requests = pod.spec.as_ref().map(|s| resources::pod_resources(s, ResourceField::Requests));
    requests.and_then(|r| r.get(name).copied()).map_or(0, Amount::value)
}

fn fs_stats(signal: Signal, split_disks: bool) -> FsStats {
    let image = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    FsStats { rootfs: !split_disks || image, logs_and_volumes: !split_disks || !image }
}

fn disk_usage(pod_usage: &PodUsage, pod: &Pod, fs_stats: FsStats) -> DiskUsage {
    let mut sum = DiskUsage::default();
    for container in &pod_usage.containers {
        if fs_stats.rootfs {
            sum = sum.plus(container.rootfs.unwrap_or_default());
        }
        if fs_stats.logs_and_volumes {
            sum = sum.plus(container.logs.unwrap_or_default());
        }
    }
    if fs_stats.logs_and_volumes {
        sum = sum.plus(local_volumes(pod_usage, pod));
    }
    sum
}

/// Returns the usage of the Pod's local volumes.
pub(super) fn local_volumes(pod_usage: &PodUsage, pod: &Pod) -> DiskUsage {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let local = volumes.iter().filter(|v| is_local_ephemeral_volume(v)).filter_map(|v| pod_usage.volumes.get(&v.name));
    local.fold(DiskUsage::default(), |sum, usage| sum.plus(*usage))
}

/// Returns whether the volume is local and ephemeral (`IsLocalEphemeralVolume`).
#[must_use]
pub fn is_local_ephemeral_volume(volume: &Volume) -> bool {
    let on_disk = volume.empty_dir.as_ref().is_some_and(|e| e.medium.as_deref().unwrap_or("").is_empty());
    on_disk || volume.config_map.is_some()
}
