//! What a Pod has promised not to use of the node's disk (`localStorageEviction`).

use super::{AT_ONCE, DiskUsage, PodFigures, message::amount, ranking::local_volumes};
use crate::Eviction;
use api::{
    quantity::Amount,
    resources::{self, Side},
};
use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};

/// The resource that limits of containers name.
const STORAGE: &str = "ephemeral-storage";

/// Why a Pod goes that uses more of the disk than it may: an `emptyDir` over its `sizeLimit`, the Pod over the sum of its
/// limits, a container over its own. `split_disks` says that images have a file system of their own.
#[must_use]
pub fn over_limits(pod: &Pod, figures: &PodFigures, split_disks: bool) -> Option<Eviction> {
    let spec = pod.spec.as_ref().filter(|_| !api::pod::is_critical(pod))?;
    let message = empty_dir(spec, figures)
        .or_else(|| whole_pod(pod, spec, figures, split_disks))
        .or_else(|| container(spec, figures, split_disks))?;
    Some(Eviction { reason: "Evicted".to_owned(), message, grace_seconds: Some(AT_ONCE), ..Eviction::default() })
}

/// Whether a Pod has promised anything about the node's disk, so that it is worth measuring.
#[must_use]
pub fn has_limits(spec: &PodSpec) -> bool {
    let sized = |v: &Volume| v.empty_dir.as_ref().is_some_and(|e| e.size_limit.is_some());
    spec.volumes.iter().flatten().any(sized) || resources::pod(spec, Side::Limits).contains_key(STORAGE)
}

fn empty_dir(spec: &PodSpec, figures: &PodFigures) -> Option<String> {
    spec.volumes.iter().flatten().find_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let (limit, shown) = amount(Some(&limit.0));
        let used = Amount::units(figures.volumes.get(&volume.name)?.bytes);
        let over = limit > Amount::ZERO && used > limit;
        over.then(|| format!("Usage of EmptyDir volume {:?} exceeds the limit {shown:?}. ", volume.name))
    })
}

fn whole_pod(pod: &Pod, spec: &PodSpec, figures: &PodFigures, split_disks: bool) -> Option<String> {
    let limit = resources::pod(spec, Side::Limits).get(STORAGE).copied()?;
    let containers = figures.containers.iter().map(|c| of_container(c, split_disks));
    let used = containers.fold(local_volumes(figures, pod), DiskUsage::plus);
    // A sum is written as its first summand is.
    let mut limits =
        api::pod::containers(spec).filter_map(|(_, c)| c.resources.as_ref()?.limits.as_ref()?.get(STORAGE));
    let binary = limits.next().is_none_or(|q| q.0.ends_with('i'));
    let shown = if binary { limit.to_binary_quantity().0 } else { limit.to_quantity().0 };
    let over = Amount::units(used.bytes) > limit;
    over.then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {shown}. "))
}

fn container(spec: &PodSpec, figures: &PodFigures, split_disks: bool) -> Option<String> {
    figures.containers.iter().find_map(|seen| {
        let limits = spec.containers.iter().find(|c| c.name == seen.name)?.resources.as_ref()?.limits.as_ref()?;
        let (limit, shown) = amount(Some(&limits.get(STORAGE)?.0));
        let used = Amount::units(of_container(seen, split_disks).bytes);
        let over = limit > Amount::ZERO && used > limit;
        over.then(|| format!("Container {} exceeded its local ephemeral storage limit {shown:?}. ", seen.name))
    })
}

fn of_container(container: &super::ContainerFigures, split_disks: bool) -> DiskUsage {
    let rootfs = container.rootfs.filter(|_| !split_disks).unwrap_or_default();
    container.logs.unwrap_or_default().plus(rootfs)
}
