//! Pod cgroups: `ROOT/kubepods[/burstable|/besteffort]/pod<UID>` on cgroup v1 and v2, as upstream's `cgroupfs` driver creates
//! them (`pkg/kubelet/cm`).
//!
//! ROOT depends on the data directory, so that several kubelets can run on one machine. The runtime creates the containers'
//! cgroups below that of their Pod.

pub(crate) mod cpu_conversion;
mod hierarchy;
mod resource_config;
mod usage;

pub(crate) use usage::CgroupUsage;

use crate::{Options, node_resources::NodeResources, os_error};
use api::resources::{self, QosClass};
use data_encoding::HEXLOWER;
use hierarchy::Hierarchy;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodSpec};
use resource_config::ResourceConfig;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, io, path::Path, time::Duration};

/// Maximum wait until the last processes of a cgroup have exited.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Failure to change the cgroup of a Pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error("failed to ensure that the pod's cgroup {path} exists: {}", os_error::message(.source))]
    Create { path: String, source: io::Error },
    #[error("the pod's cgroup {path} could not be resized: {}", os_error::message(.source))]
    Resize { path: String, source: io::Error },
    #[error("removing the cgroup {path}: {}, {killed} of its processes were killed", os_error::message(.source))]
    Remove { path: String, source: io::Error, killed: usize },
}

/// Manager of the Pods' cgroups.
pub(crate) struct CgroupManager {
    /// `ROOT/kubepods`.
    kubepods: String,
    /// `None` if Pods have no cgroups; the runtime then uses its default.
    hierarchy: Option<Hierarchy>,
    /// Whether Node Allocatable is enforced for Pods.
    enforce: bool,
    quota_period: i64,
    pids: Option<i64>,
    single_process_oom_kill: bool,
}

impl CgroupManager {
    /// Creates the cgroups for all Pods and for the QoS classes. On failure a warning is logged, and the runtime uses its default
    /// cgroups.
    pub(crate) fn new(options: &Options, node_resources: &NodeResources) -> Self {
        let config = &options.config;
        let root = config.cgroup_root.clone().unwrap_or_else(|| default_root(&options.root_dir));
        let mut cgroups = Self {
            kubepods: format!("{}/kubepods", root.trim_end_matches('/')),
            hierarchy: None,
            enforce: config.enforce_node_allocatable.iter().any(|name| name == "pods"),
            quota_period: i64::try_from(config.cpu_cfs_quota_period.as_micros())
                .unwrap_or(cpu_conversion::DEFAULT_PERIOD),
            pids: Some(config.pod_pids_limit).filter(|n| *n > 0),
            single_process_oom_kill: config.single_process_oom_kill.unwrap_or(false),
        };
        if !config.cgroups_per_qos {
            return cgroups;
        }
        let hierarchy = if config.cgroup_driver == "cgroupfs" {
            Hierarchy::detect()
        } else {
            Err(io::Error::other(format!("cgroupDriver {:?} is not implemented yet", config.cgroup_driver)))
        };
        let created = hierarchy.and_then(|h| cgroups.create_qos_cgroups(&h, node_resources).map(|()| h));
        match created {
            Ok(hierarchy) => cgroups.hierarchy = Some(hierarchy),
            Err(error) => tracing::warn!(%error, "failed to create cgroups, Pods get the runtime's default"),
        }
        cgroups
    }

    /// Returns whether Node Allocatable is enforced for Pods.
    pub(crate) fn enforces_node_allocatable(&self) -> bool {
        self.enforce && self.hierarchy.is_some()
    }

    /// Creates the cgroups of the QoS classes; Guaranteed Pods are directly below `kubepods`.
    fn create_qos_cgroups(&self, hierarchy: &Hierarchy, node_resources: &NodeResources) -> io::Result<()> {
        hierarchy.set(&self.kubepods, &ResourceConfig::for_all_pods(&node_resources.unreserved, self.enforce))?;
        for class in [QosClass::Burstable, QosClass::BestEffort] {
            hierarchy.set(&self.qos_cgroup(class), &ResourceConfig::shares(cpu_conversion::MIN_SHARES))?;
        }
        Ok(())
    }

    fn qos_cgroup(&self, class: QosClass) -> String {
        match class {
            QosClass::Guaranteed => self.kubepods.clone(),
            QosClass::Burstable => format!("{}/burstable", self.kubepods),
            QosClass::BestEffort => format!("{}/besteffort", self.kubepods),
        }
    }

    /// Returns the cgroup parent of a Pod's containers: an absolute path within the hierarchies.
    pub(crate) fn path(&self, pod: &ApiPod) -> Option<String> {
        self.hierarchy.as_ref()?;
        let class = resources::qos_class(pod.spec.as_ref()?);
        Some(format!("{}/pod{}", self.qos_cgroup(class), pod.metadata.uid.as_deref()?))
    }

    /// Returns the files of a container's cgroup that follow from no limit, which only cgroup v2 has: the kernel kills all processes
    /// of a container that exceeds its memory limit, and the container does not swap (upstream's `NoSwap`).
    pub(crate) fn container_files(&self) -> BTreeMap<String, String> {
        let Some(hierarchy) = self.hierarchy.as_ref().filter(|hierarchy| hierarchy.is_v2()) else {
            return BTreeMap::new();
        };
        let if_exists = |name, value| hierarchy.has_file(&self.kubepods, name).then_some((name, value));
        let group = if_exists("memory.oom.group", "1").filter(|_| !self.single_process_oom_kill);
        let swap = if_exists("memory.swap.max", "0");
        group.into_iter().chain(swap).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the cgroup of all Pods.
    pub(crate) fn root(&self) -> &str {
        &self.kubepods
    }

    /// Returns the usage of a cgroup; `None` if it is missing.
    pub(crate) fn usage(&self, path: &str) -> Option<CgroupUsage> {
        self.hierarchy.as_ref()?.usage(path)
    }

    /// Returns the id of a process in a cgroup.
    pub(crate) fn process(&self, path: &str) -> Option<u32> {
        self.hierarchy.as_ref()?.process(path)
    }

    /// Returns memory limit and working set of all Pods together; `None` without a limit.
    pub(crate) fn pods_memory(&self) -> Option<(i64, i64)> {
        let usage = self.usage(&self.kubepods)?;
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Some((number(usage.memory_limit?), number(usage.working_set?)))
    }

    /// Creates the cgroup of a Pod and sets its limits.
    pub(crate) fn create(&self, pod: &ApiPod) -> Result<(), CgroupError> {
        let (Some(hierarchy), Some(path), Some(spec)) = (&self.hierarchy, self.path(pod), &pod.spec) else {
            return Ok(());
        };
        let limits = ResourceConfig { pids: self.pids, ..ResourceConfig::for_pod(spec, self.quota_period) };
        hierarchy.set(&path, &limits).map_err(|source| CgroupError::Create { path, source })
    }

    /// Raises the limits of a Pod's cgroup to the larger of both specs.
    pub(crate) fn grow(&self, old_pod: &ApiPod, new_pod: &ApiPod) -> Result<(), CgroupError> {
        let (Some(hierarchy), Some(path), Some(old), Some(new)) =
            (&self.hierarchy, self.path(new_pod), &old_pod.spec, &new_pod.spec)
        else {
            return Ok(());
        };
        let limits =
            ResourceConfig::for_pod(old, self.quota_period).max_of(&ResourceConfig::for_pod(new, self.quota_period));
        hierarchy.set(&path, &limits).map_err(|source| CgroupError::Resize { path, source })
    }

    /// Returns the Pod's memory limit in bytes.
    pub(crate) fn memory_limit(&self, spec: &PodSpec) -> Option<i64> {
        ResourceConfig::for_pod(spec, self.quota_period).memory
    }

    /// Returns the memory usage of a Pod, or of one of its containers, in bytes.
    pub(crate) fn memory_usage(&self, pod: &ApiPod, container: Option<&str>) -> Option<i64> {
        let path = self.path(pod)?;
        let path = container.map_or_else(|| path.clone(), |id| format!("{path}/{id}"));
        self.hierarchy.as_ref()?.memory_usage(&path)
    }

    /// Returns the number of OOM-killed processes of a container; `None` if its cgroup is missing.
    pub(crate) fn oom_kills(&self, pod: &ApiPod, container: &str) -> Option<u64> {
        self.hierarchy.as_ref()?.oom_kills(&format!("{}/{container}", self.path(pod)?))
    }

    /// Removes the cgroup of a Pod and those below it. Processes that the runtime has lost are killed (upstream's
    /// `tryKillingCgroupProcesses`); exiting ones are waited for.
    pub(crate) async fn remove(&self, pod: &ApiPod) -> Result<(), CgroupError> {
        let (Some(hierarchy), Some(path)) = (&self.hierarchy, self.path(pod)) else { return Ok(()) };
        let mut killed = 0;
        let removed = remove_when_empty(hierarchy, &path, || killed = hierarchy.kill(&path).max(killed)).await;
        removed.map_err(|source| CgroupError::Remove { path, source, killed })
    }

    /// Sets the CPU shares of the Burstable class to the sum of its Pods' requests (`qosContainerManager`).
    pub(crate) fn update_burstable_shares<'a>(&self, pods: impl Iterator<Item = &'a ApiPod>) {
        let Some(hierarchy) = &self.hierarchy else { return };
        let burstable = pods.filter_map(|p| p.spec.as_ref()).filter(|s| resources::qos_class(s) == QosClass::Burstable);
        let cpu = burstable
            .map(resource_config::requested_cpu)
            .fold(api::quantity::Amount::ZERO, api::quantity::Amount::saturating_add);
        let path = self.qos_cgroup(QosClass::Burstable);
        if let Err(error) = hierarchy.set(&path, &ResourceConfig::shares(cpu_conversion::shares(cpu))) {
            tracing::warn!(%error, "failed to set the CPU shares of Burstable Pods");
        }
    }

    /// Removes cgroups of unknown Pods, unless they have processes.
    pub(crate) fn remove_orphans(&self, is_known: impl Fn(&str) -> bool) {
        let Some(hierarchy) = &self.hierarchy else { return };
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            let dir = self.qos_cgroup(class);
            for name in hierarchy.children(&dir) {
                if name.strip_prefix("pod").is_some_and(|uid| !is_known(uid))
                    && let Err(error) = hierarchy.remove(&format!("{dir}/{name}"))
                {
                    tracing::debug!(%error, name, "failed to remove the cgroup of a removed Pod");
                }
            }
        }
    }
}

/// Removes all cgroups of a data directory's Pods. Processes that were just killed are waited for.
///
/// # Errors
/// Fails if a cgroup cannot be removed, for example because it has a process.
pub async fn remove_all(root_dir: &Path) -> io::Result<()> {
    let Ok(hierarchy) = Hierarchy::detect() else { return Ok(()) };
    remove_when_empty(&hierarchy, &default_root(root_dir), || {}).await
}

/// Removes a cgroup when its last process has exited: the kernel keeps it for a moment after the exit.
async fn remove_when_empty(hierarchy: &Hierarchy, path: &str, mut on_busy: impl FnMut()) -> io::Result<()> {
    let deadline = tokio::time::Instant::now() + REMOVE_TIMEOUT;
    loop {
        match hierarchy.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && tokio::time::Instant::now() < deadline => {
                on_busy();
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            done => return done,
        }
    }
}

/// Returns the root cgroup of a data directory.
fn default_root(root_dir: &Path) -> String {
    let hash = Sha256::digest(root_dir.as_os_str().as_encoded_bytes());
    format!("/podium-{}", HEXLOWER.encode(&hash[..6]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use serde_json::{Value, json};
    use std::fs;

    fn cgroups(dir: &Path) -> CgroupManager {
        let hierarchy = Some(Hierarchy::V2(dir.to_owned()));
        CgroupManager {
            kubepods: "/r/kubepods".to_owned(),
            hierarchy,
            enforce: true,
            quota_period: cpu_conversion::DEFAULT_PERIOD,
            pids: None,
            single_process_oom_kill: false,
        }
    }

    fn pod(uid: &str, resources: &Value) -> ApiPod {
        let containers = json!([{"name": "c", "resources": resources}]);
        serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {"containers": containers}})).unwrap()
    }

    #[test]
    fn pod_cgroup_depends_on_the_qos_class() {
        let cgroups = cgroups(Path::new("/nowhere"));
        let both = json!({"cpu": "1", "memory": "1Mi"});
        for (resources, expected) in [
            (json!({}), "/r/kubepods/besteffort/podu"),
            (json!({"requests": both}), "/r/kubepods/burstable/podu"),
            (json!({"requests": both, "limits": both}), "/r/kubepods/podu"),
        ] {
            assert_eq!(cgroups.path(&pod("u", &resources)).as_deref(), Some(expected));
        }
    }

    /// A mount point stands in for a cgroup with a process: the kernel refuses to remove both.
    #[tokio::test]
    async fn busy_cgroup_is_waited_for_without_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (cgroups, pod) = (cgroups(dir.path()), pod("u", &json!({})));
        let group = dir.path().join("r/kubepods/besteffort/podu");
        fs::create_dir_all(&group).unwrap();
        mount(Some("tmpfs"), &group, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let mut removing = Box::pin(cgroups.remove(&pod));
        assert!(futures::poll!(&mut removing).is_pending());
        umount2(&group, MntFlags::MNT_DETACH).unwrap();
        removing.await.unwrap();
        assert!(!group.exists());
    }

    #[test]
    fn v2_containers_are_killed_as_a_whole_and_do_not_swap() {
        let dir = tempfile::tempdir().unwrap();
        let mut cgroups = cgroups(dir.path());
        let files = |cgroups: &CgroupManager| cgroups.container_files().into_iter().collect::<Vec<_>>();
        let file = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        // A kernel without the memory controller or swap accounting has no such files.
        assert_eq!(files(&cgroups), []);
        fs::create_dir_all(dir.path().join("r/kubepods")).unwrap();
        fs::write(dir.path().join("r/kubepods/memory.oom.group"), "0").unwrap();
        assert_eq!(files(&cgroups), [file("memory.oom.group", "1")]);
        fs::write(dir.path().join("r/kubepods/memory.swap.max"), "max").unwrap();
        assert_eq!(files(&cgroups), [file("memory.oom.group", "1"), file("memory.swap.max", "0")]);
        cgroups.single_process_oom_kill = true;
        assert_eq!(files(&cgroups), [file("memory.swap.max", "0")]);
        let root = dir.path().to_owned();
        cgroups.hierarchy = Some(Hierarchy::V1 { cpu: root.clone(), memory: root, pids: None, all: Vec::new() });
        assert_eq!(files(&cgroups), []);
    }

    #[test]
    fn data_directories_have_separate_root_cgroups() {
        assert_ne!(default_root(Path::new("/a")), default_root(Path::new("/b")));
        assert!(default_root(Path::new("/a")).starts_with("/podium-"));
    }

    #[test]
    fn burstable_shares_follow_requests_and_orphans_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = cgroups(dir.path());
        let pods = [pod("a", &json!({"requests": {"cpu": "1"}})), pod("b", &json!({"requests": {"cpu": "500m"}}))];
        pods.iter().for_each(|p| cgroups.create(p).unwrap());
        cgroups.update_burstable_shares(pods.iter().chain([&pod("c", &json!({}))]));
        let burstable = dir.path().join("r/kubepods/burstable");
        assert_eq!(crate::host_file::read_text(burstable.join("cpu.weight")).unwrap(), "59");
        // Unlike the files of a cgroup, those of a plain directory must be removed first.
        for file in ["cpu.weight", "cgroup.subtree_control"] {
            let _ = fs::remove_file(burstable.join("podb").join(file));
        }
        cgroups.remove_orphans(|uid| uid == "a");
        assert!(burstable.join("poda").exists() && !burstable.join("podb").exists());
    }
}
