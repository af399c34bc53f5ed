//! Eviction ranking of Pods (`rankMemoryPressure`, `rankDiskPressureFunc`).

use super::{AT_ONCE, Candidate, DiskUsage, PodFigures, Resource, Signal, Starved, message};
use crate::Eviction;
use api::{
    pod::{is_critical, priority},
    quantity::Amount,
    resources::{self, Side},
};
use k8s_openapi::api::core::v1::{Pod, Volume};
use std::cmp::Reverse;

/// What of a Pod's disk usage counts.
#[derive(Clone, Copy)]
struct FsStats {
    rootfs: bool,
    logs_and_volumes: bool,
}

/// The Pod that goes for what is lacking, and how: one that uses more than it asked for before one that does not, then the
/// lower priority, then the larger excess. Of what the system cannot do without nothing goes.
///
/// `split_disks` says that images have a file system of their own.
#[must_use]
pub fn victim<'a>(
    starved: &Starved,
    candidates: &'a [Candidate],
    split_disks: bool,
) -> Option<(&'a Candidate, Eviction)> {
    let may_go = candidates.iter().filter(|c| !is_critical(&c.pod));
    let first = may_go.min_by_key(|c| rank(starved.threshold.signal, c, split_disks))?;
    let own = first.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let own = own.and_then(|seconds| u32::try_from(seconds).ok());
    let grace_seconds = if starved.threshold.is_hard() {
        Some(AT_ONCE)
    } else {
        starved.max_pod_grace_seconds.map(|max| own.map_or(max, |own| own.min(max)).max(AT_ONCE))
    };
    let (message, annotations) = message::of_pressure(starved, &first.pod, first.figures.as_ref());
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

/// The smallest goes first: seen at all, within its request, priority, excess.
type Rank = (bool, bool, i32, Reverse<i64>);

fn rank(signal: Signal, candidate: &Candidate, split_disks: bool) -> Rank {
    let Some(figures) = &candidate.figures else {
        return (false, false, priority(&candidate.pod), Reverse(0));
    };
    let resource = signal.resource();
    let used = match resource {
        Resource::Memory => figures.memory.unwrap_or(0),
        Resource::Pids => figures.processes.unwrap_or(0),
        Resource::EphemeralStorage => disk(figures, &candidate.pod, measured(signal, split_disks)).bytes,
        Resource::Inodes => disk(figures, &candidate.pod, measured(signal, split_disks)).inodes,
    };
    let within = resource == Resource::Pids || used <= request(&candidate.pod, resource.as_str());
    // Upstream subtracts the request for storage from inodes, too.
    let relative_to = match resource {
        Resource::Memory => request(&candidate.pod, "memory"),
        Resource::EphemeralStorage | Resource::Inodes => request(&candidate.pod, "ephemeral-storage"),
        Resource::Pids => 0,
    };
    (true, within, priority(&candidate.pod), Reverse(used.saturating_sub(relative_to)))
}

fn request(pod: &Pod, name: &str) -> i64 {
    let requests = pod.spec.as_ref().map(|s| resources::pod(s, Side::Requests));
    requests.and_then(|r| r.get(name).copied()).map_or(0, Amount::value)
}

fn measured(signal: Signal, split_disks: bool) -> FsStats {
    let image = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    FsStats { rootfs: !split_disks || image, logs_and_volumes: !split_disks || !image }
}

fn disk(figures: &PodFigures, pod: &Pod, measured: FsStats) -> DiskUsage {
    let mut sum = DiskUsage::default();
    for container in &figures.containers {
        if measured.rootfs {
            sum = sum.plus(container.rootfs.unwrap_or_default());
        }
        if measured.logs_and_volumes {
            sum = sum.plus(container.logs.unwrap_or_default());
        }
    }
    if measured.logs_and_volumes {
        sum = sum.plus(local_volumes(figures, pod));
    }
    sum
}

/// What the Pod's volumes take of the node's own disk.
pub(super) fn local_volumes(figures: &PodFigures, pod: &Pod) -> DiskUsage {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let local = volumes.iter().filter(|v| is_local(v)).filter_map(|v| figures.volumes.get(&v.name));
    local.fold(DiskUsage::default(), |sum, usage| sum.plus(*usage))
}

/// `IsLocalEphemeralVolume`.
fn is_local(volume: &Volume) -> bool {
    let on_disk = volume.empty_dir.as_ref().is_some_and(|e| e.medium.as_deref().unwrap_or("").is_empty());
    on_disk || volume.config_map.is_some()
}
