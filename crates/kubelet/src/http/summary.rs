//! `/stats/summary`: resource usage of the node and its Pods (upstream's `k8s.io/kubelet/pkg/apis/stats/v1alpha1`).

use crate::{
    Shared,
    cgroup::CgroupUsage,
    eviction,
    pod_stats::{self, ContainerStats, PodStats},
    system_stats::{self, FileSystem, NetworkInterface},
    volumes,
};
use axum::{
    Json,
    extract::{Query, State},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, Volume},
    apimachinery::pkg::apis::meta::v1::Time,
};
use lifecycle::eviction::DiskUsage;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::{collections::HashMap, sync::Arc};

/// Previous CPU time samples by cgroup, from which the rates are computed.
#[derive(Default)]
pub(crate) struct CpuRates(Mutex<HashMap<String, (Timestamp, u64)>>);

impl CpuRates {
    /// Returns the CPU rate since the last sample in nanocores; `None` for the first sample, or if no time has passed.
    fn since(&self, cgroup: &str, now: Timestamp, cpu: u64) -> Option<u64> {
        let mut samples = self.0.lock();
        let (at, before) = samples.get(cgroup).copied().unwrap_or((now, cpu));
        let elapsed = u64::try_from(now.duration_since(at).as_nanos()).ok()?;
        if elapsed == 0 || elapsed >= 1_000_000_000 {
            samples.insert(cgroup.to_owned(), (now, cpu));
        }
        let used = u128::from(cpu.saturating_sub(before)) * 1_000_000_000;
        u64::try_from(used.checked_div(u128::from(elapsed))?).ok()
    }

    /// Returns the number of cgroups with samples.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Removes the samples of cgroups for which `exists` is false.
    fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.0.lock().retain(|cgroup, _| exists(cgroup));
    }
}

pub(super) async fn summary(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<HashMap<String, String>>,
) -> Json<Value> {
    let brief = query.get("only_cpu_and_memory").is_some_and(|v| v == "true" || v == "1");
    let pods = pod_stats::collect(&shared, pod_stats::active(&shared), !brief).await;
    let view = View { shared: &shared, now: shared.now(), brief, disk: shared.evictions.system_stats().node_fs() };
    let rendered: Vec<Value> = pods.iter().map(|p| view.pod(p)).collect();
    let node = view.node(eviction::image_fs(&shared).await.as_path(), &pods);
    let cgroups_in_use: Vec<&String> =
        pods.iter().flat_map(|p| p.containers.iter().map(|c| &c.cgroup).chain([&p.cgroup])).flatten().collect();
    let root = shared.cgroups.root();
    shared.rates.retain(|cgroup| cgroup == "/" || cgroup == root || cgroups_in_use.iter().any(|k| *k == cgroup));
    Json(json!({"node": node, "pods": rendered}))
}

struct View<'a> {
    shared: &'a Shared,
    now: Timestamp,
    /// Only CPU and memory.
    brief: bool,
    /// File system of volumes and logs.
    disk: Option<FileSystem>,
}

impl View<'_> {
    fn node(&self, image_fs: &std::path::Path, pods: &[PodStats]) -> Value {
        let system_stats = self.shared.evictions.system_stats();
        let (memory, faults) = (system_stats.memory().unwrap_or_default(), system_stats.faults());
        let usage = CgroupUsage {
            cpu: system_stats.cpu(),
            memory: Some(memory.used),
            working_set: Some(memory.total.saturating_sub(memory.available)),
            swap: Some(memory.swap_total.saturating_sub(memory.swap_free)),
            memory_limit: Some(memory.total),
            rss: Some(memory.anonymous),
            page_faults: faults.all,
            major_page_faults: faults.major,
            ..CgroupUsage::default()
        };
        let mut node = self.usage("/", &usage);
        node.insert("nodeName".to_owned(), json!(self.shared.options.node_name));
        node.insert("startTime".to_owned(), json!(Time(boot_time(self.now))));
        node.insert("systemContainers".to_owned(), self.system_containers());
        if self.brief {
            return node.into();
        }
        if let Some(swap) = node.get_mut("swap") {
            swap["swapAvailableBytes"] = json!(memory.swap_free);
        }
        if let Some(disk) = self.disk {
            node.insert("fs".to_owned(), self.disk(disk, None));
        }
        if let Some(disk) = system_stats::file_system(image_fs) {
            let written = pods.iter().flat_map(|p| &p.containers).filter_map(|c| c.rootfs);
            let containers = written.fold(DiskUsage::default(), DiskUsage::plus);
            let (images, containers) = (self.disk(disk, None), self.disk(disk, Some(containers)));
            node.insert("runtime".to_owned(), json!({"imageFs": images, "containerFs": containers}));
        }
        if let Some(network) = self.network(&system_stats.interfaces()) {
            node.insert("network".to_owned(), network);
        }
        if let Some(processes) = system_stats.processes() {
            let rlimit = json!({"time": Time(self.now), "maxpid": processes.max, "curproc": processes.running});
            node.insert("rlimit".to_owned(), rlimit);
        }
        node.into()
    }

    /// Returns the usage of the cgroup of all Pods.
    fn system_containers(&self) -> Value {
        let cgroups = &self.shared.cgroups;
        let Some(usage) = cgroups.usage(cgroups.root()) else { return json!([]) };
        let mut pods = self.usage(cgroups.root(), &usage);
        pods.insert("name".to_owned(), json!("pods"));
        pods.insert("startTime".to_owned(), json!(Time(boot_time(self.now))));
        json!([pods])
    }

    fn pod(&self, stats: &PodStats) -> Value {
        let meta = &stats.pod.metadata;
        let mut pod = self.usage(stats.cgroup.as_deref().unwrap_or_default(), &stats.usage);
        let reference = json!({"name": meta.name, "namespace": meta.namespace, "uid": meta.uid});
        pod.insert("podRef".to_owned(), reference);
        let started = stats.pod.status.as_ref().and_then(|s| s.start_time.clone());
        pod.insert("startTime".to_owned(), json!(started));
        let containers: Vec<Value> = stats.containers.iter().map(|c| self.container(c)).collect();
        pod.insert("containers".to_owned(), json!(containers));
        if self.brief {
            return pod.into();
        }
        if let Some(disk) = self.disk {
            let uid = meta.uid.as_deref().unwrap_or_default();
            let volume = |(name, usage): (&String, &DiskUsage)| {
                // A memory-backed volume is a file system of its own.
                let fs_stats = system_stats::file_system(&self.shared.paths.volume(uid, name));
                let mut volume = self.disk(fs_stats.unwrap_or(disk), Some(*usage));
                volume["name"] = json!(name);
                volume
            };
            let volumes = stats.volumes.iter().map(volume).chain(self.claim_volumes(&stats.pod)).collect();
            pod.insert("volume".to_owned(), volumes);
            pod.insert("ephemeral-storage".to_owned(), self.disk(disk, Some(stats.storage())));
        }
        if let Some(network) = self.network(&stats.links) {
            pod.insert("network".to_owned(), network);
        }
        if let Some(processes) = stats.usage.processes {
            pod.insert("process_stats".to_owned(), json!({"process_count": processes}));
        }
        pod.into()
    }

    /// Returns the mounted volumes of PersistentVolumeClaims, with the usage of the whole file system.
    fn claim_volumes(&self, pod: &Pod) -> Vec<Value> {
        let meta = &pod.metadata;
        let (uid, name) = (meta.uid.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let rendered = |pod_volume: &Volume| {
            let claim = api::persistent_volume_claim::claim_name(name, pod_volume)?;
            let dir = self.shared.paths.volume(uid, &pod_volume.name);
            let disk = volumes::is_bind_mounted(&dir).then(|| system_stats::file_system(&dir))??;
            let mut volume = self.disk(disk, None);
            volume["name"] = json!(pod_volume.name);
            volume["pvcRef"] = json!({"name": claim, "namespace": meta.namespace});
            Some(volume)
        };
        pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).filter_map(rendered).collect()
    }

    fn container(&self, stats: &ContainerStats) -> Value {
        let mut container = self.usage(stats.cgroup.as_deref().unwrap_or_default(), &stats.usage);
        container.insert("name".to_owned(), json!(stats.name));
        container.insert("startTime".to_owned(), json!(stats.started_at.map(Time)));
        for (field, usage) in [("rootfs", stats.rootfs), ("logs", stats.logs)] {
            if let Some((usage, disk)) = usage.zip(self.disk) {
                container.insert(field.to_owned(), self.disk(disk, Some(usage)));
            }
        }
        container.into()
    }

    /// Returns the fields `cpu`, `memory` and `swap`.
    fn usage(&self, cgroup: &str, usage: &CgroupUsage) -> Map<String, Value> {
        let now = Time(self.now);
        let mut all = Map::new();
        if let Some(used) = usage.cpu {
            let rate = self.shared.rates.since(cgroup, self.now, used);
            all.insert(
                "cpu".to_owned(),
                without_nulls(json!({"time": now, "usageNanoCores": rate, "usageCoreNanoSeconds": used})),
            );
        }
        if usage.memory.is_some() {
            let available = usage.memory_limit.zip(usage.working_set).map(|(limit, used)| limit.saturating_sub(used));
            let memory = json!({
                "time": now, "availableBytes": available, "usageBytes": usage.memory, "workingSetBytes": usage.working_set,
                "rssBytes": usage.rss, "pageFaults": usage.page_faults, "majorPageFaults": usage.major_page_faults,
            });
            all.insert("memory".to_owned(), without_nulls(memory));
        }
        if let Some(swap) = usage.swap.filter(|_| !self.brief) {
            all.insert("swap".to_owned(), json!({"time": now, "swapUsageBytes": swap}));
        }
        all
    }

    /// Returns the network statistics; the top-level fields are those of the first interface.
    fn network(&self, links: &[NetworkInterface]) -> Option<Value> {
        let rendered = |link: &NetworkInterface| {
            json!({
                "name": link.name, "rxBytes": link.received, "rxErrors": link.receive_errors,
                "txBytes": link.sent, "txErrors": link.send_errors,
            })
        };
        let mut network = rendered(links.first()?);
        network["time"] = json!(Time(self.now));
        network["interfaces"] = links.iter().map(rendered).collect();
        Some(network)
    }

    /// Returns the statistics of a file system; `used` is the usage to report instead of the whole file system's.
    fn disk(&self, disk: FileSystem, used: Option<DiskUsage>) -> Value {
        let all = DiskUsage {
            bytes: system_stats::saturating_i64(disk.capacity.saturating_sub(disk.free)),
            inodes: system_stats::saturating_i64(disk.inodes.saturating_sub(disk.inodes_free)),
        };
        let used = used.unwrap_or(all);
        json!({
            "time": Time(self.now), "availableBytes": disk.available, "capacityBytes": disk.capacity,
            "usedBytes": used.bytes, "inodesFree": disk.inodes_free, "inodes": disk.inodes, "inodesUsed": used.inodes,
        })
    }
}

/// Removes null fields.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

/// Returns the boot time of the node.
fn boot_time(now: Timestamp) -> Timestamp {
    let uptime = crate::host_file::read_text("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split(['.', ' ']).next().and_then(|s| s.parse().ok()).unwrap_or(0);
    now.checked_sub(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_rate_is_reported_from_the_second_sample() {
        let rates = CpuRates::default();
        let at = |ms: i64| Timestamp::from_millisecond(1_000_000 + ms).unwrap();
        assert_eq!(rates.since("/p", at(0), 5_000_000_000), None);
        assert_eq!(rates.since("/p", at(2000), 6_000_000_000), Some(500_000_000));
        // A sample within one second reports the rate since the kept sample, and does not replace it.
        assert_eq!(rates.since("/p", at(2500), 6_250_000_000), Some(500_000_000));
        assert_eq!(rates.since("/p", at(3000), 6_250_000_000), Some(250_000_000));
        rates.retain(|cgroup| cgroup != "/p");
        assert_eq!(rates.since("/p", at(4000), 7_000_000_000), None);
    }
}
