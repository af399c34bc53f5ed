//! Resource usage of Pods and containers, collected on request.

use crate::{
    Shared, blocking,
    cgroup::CgroupUsage,
    logs,
    system_stats::{self, NetworkInterface},
    volumes,
};
use api::pod::containers;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod as ApiPod};
use lifecycle::{
    Pod,
    eviction::{ContainerUsage, DiskUsage, PodUsage, is_local_ephemeral_volume},
};
use runtime::ContainerId;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

/// Resource usage of a container.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerStats {
    pub(crate) name: String,
    /// Container ID of the runtime.
    pub(crate) id: String,
    /// Absolute path of the cgroup within the hierarchies.
    pub(crate) cgroup: Option<String>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) usage: CgroupUsage,
    /// Usage of the writable layer.
    pub(crate) rootfs: Option<DiskUsage>,
    pub(crate) logs: Option<DiskUsage>,
}

/// Resource usage of a Pod.
#[derive(Debug, Clone)]
pub(crate) struct PodStats {
    pub(crate) pod: Arc<ApiPod>,
    pub(crate) cgroup: Option<String>,
    pub(crate) usage: CgroupUsage,
    /// Network interfaces of the Pod; none with `hostNetwork`.
    pub(crate) links: Vec<NetworkInterface>,
    pub(crate) containers: Vec<ContainerStats>,
    /// Disk usage of the Pod's local volumes.
    pub(crate) volumes: BTreeMap<String, DiskUsage>,
    /// Disk usage of the Pod's `/etc/hosts` file.
    pub(crate) other: DiskUsage,
}

impl PodStats {
    /// Returns the statistics for the eviction decision.
    pub(crate) fn eviction_usage(&self) -> PodUsage {
        let to_i64 = |n: Option<u64>| n.map(system_stats::saturating_i64);
        let container = |c: &ContainerStats| ContainerUsage {
            name: c.name.clone(),
            memory: to_i64(c.usage.working_set),
            rootfs: c.rootfs,
            logs: c.logs,
        };
        PodUsage {
            memory: to_i64(self.usage.working_set),
            processes: to_i64(self.usage.processes),
            containers: self.containers.iter().map(container).collect(),
            volumes: self.volumes.clone(),
        }
    }

    /// Whether the disk usage of all containers is known.
    pub(crate) fn is_counted(&self) -> bool {
        self.containers.iter().all(|c| c.rootfs.is_some() && c.logs.is_some())
    }

    /// Returns the ephemeral storage usage of the Pod.
    pub(crate) fn storage(&self) -> DiskUsage {
        let containers = self.containers.iter().flat_map(|c| [c.rootfs, c.logs]).flatten();
        let all = self.pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
        let local = all.iter().filter(|volume| is_local_ephemeral_volume(volume));
        let volumes = local.filter_map(|volume| self.volumes.get(&volume.name)).copied();
        containers.chain(volumes).fold(self.other, DiskUsage::plus)
    }
}

/// Collects the usage of Pods; `disks` includes disk usage, which is measured file by file.
pub(crate) async fn collect(shared: &Shared, pods: Vec<Arc<Pod>>, disks: bool) -> Vec<PodStats> {
    let mut all = Vec::new();
    for pod in pods {
        all.push(collect_pod(shared, &pod, disks).await);
    }
    all
}

/// Returns the usage of a container's writable layer, if the runtime reports it.
async fn rootfs(shared: &Shared, id: &str) -> Option<DiskUsage> {
    match shared.runtime.container_disk(&ContainerId(id.to_owned())).await {
        Ok(disk) => disk.map(|d| DiskUsage {
            bytes: system_stats::saturating_i64(d.bytes),
            inodes: system_stats::saturating_i64(d.inodes),
        }),
        Err(error) => {
            tracing::debug!(%error, id, "failed to get the disk usage of a container");
            None
        }
    }
}

/// Returns the admitted Pods that are not terminal.
pub(crate) fn active(shared: &Shared) -> Vec<Arc<Pod>> {
    let all = shared.pods.all().into_iter().map(|h| h.state.borrow().clone());
    all.filter(|pod| pod.is_admitted() && !api::pod::is_terminal(pod.object())).collect()
}

async fn collect_pod(shared: &Shared, pod: &Arc<Pod>, disks: bool) -> PodStats {
    let cgroup = shared.cgroups.path(pod.object());
    let mut stats = PodStats {
        pod: Arc::clone(pod.object()),
        usage: cgroup.as_deref().and_then(|path| shared.cgroups.usage(path)).unwrap_or_default(),
        containers: running_containers(shared, pod, cgroup.as_deref()),
        links: Vec::new(),
        volumes: BTreeMap::new(),
        other: DiskUsage::default(),
        cgroup,
    };
    if !disks {
        return stats;
    }
    if crate::pods::spec(pod).host_network != Some(true) {
        let mut cgroups = stats.containers.iter().filter_map(|c| c.cgroup.as_deref());
        let process = cgroups.find_map(|path| shared.cgroups.process(path));
        stats.links =
            process.map(|pid| system_stats::interfaces(&PathBuf::from(format!("/proc/{pid}/net")))).unwrap_or_default();
    }
    for container in &mut stats.containers {
        container.rootfs = rootfs(shared, &container.id).await;
    }
    let logs: Vec<PathBuf> = stats.containers.iter().map(|c| log_dir(shared, pod, &c.name)).collect();
    let volumes: Vec<(String, PathBuf)> = crate::pods::spec(pod)
        .volumes
        .iter()
        .flatten()
        .filter(|v| volumes::has_metrics(v))
        .map(|v| (v.name.clone(), shared.paths.volume(pod.uid(), &v.name)))
        .collect();
    let hosts = shared.paths.hosts_file(pod.uid());
    let counted = blocking::run_infallible(move || {
        let logs: Vec<DiskUsage> = logs.iter().map(|dir| system_stats::disk_usage(dir)).collect();
        let existing = volumes.into_iter().filter(|(_, dir)| dir.exists());
        let volumes: BTreeMap<_, _> = existing.map(|(name, dir)| (name, system_stats::disk_usage(&dir))).collect();
        (logs, volumes, system_stats::disk_usage(&hosts))
    });
    if let Ok((logs, volumes, other)) = counted.await {
        stats.containers.iter_mut().zip(logs).for_each(|(c, usage)| c.logs = Some(usage));
        (stats.volumes, stats.other) = (volumes, other);
    }
    stats
}

fn log_dir(shared: &Shared, pod: &Pod, container: &str) -> PathBuf {
    let file = logs::log_path(shared, pod, container, 0);
    file.parent().map(PathBuf::from).unwrap_or(file)
}

fn running_containers(shared: &Shared, pod: &Pod, cgroup: Option<&str>) -> Vec<ContainerStats> {
    let status = lifecycle::status(pod, &shared.options.policy, shared.now());
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let statuses: Vec<&ContainerStatus> = lists.into_iter().flatten().flatten().collect();
    let started_at = |name: &str| {
        let state = statuses.iter().find(|s| s.name == name)?.state.as_ref()?;
        Some(state.running.as_ref()?.started_at.as_ref()?.0)
    };
    containers(crate::pods::spec(pod))
        .filter(|(_, c)| pod.is_running(&c.name))
        .filter_map(|(_, c)| {
            let (id, _) = pod.container_id(&c.name, false)?;
            let cgroup = cgroup.map(|path| shared.cgroups.container_path(path, &id));
            let usage = cgroup.as_deref().and_then(|path| shared.cgroups.usage(path)).unwrap_or_default();
            let (name, started_at) = (c.name.clone(), started_at(&c.name));
            Some(ContainerStats { name, id, cgroup, started_at, usage, rootfs: None, logs: None })
        })
        .collect()
}
