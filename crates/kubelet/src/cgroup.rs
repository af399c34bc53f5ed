//! Pod cgroups: `ROOT/kubepods[/burstable|/besteffort]/pod<UID>` on cgroup v1 and v2, as upstream creates them
//! (`pkg/kubelet/cm`): directories with the driver `cgroupfs`, slices with the driver `systemd`.
//!
//! ROOT depends on the data directory, so that several kubelets can run on one machine. The runtime creates the containers'
//! cgroups below that of their Pod.
//!
//! **Invariant:** with the driver `systemd` no Pod starts without its slice: there is no fallback.

pub(crate) mod cpu_conversion;
mod driver;
mod hierarchy;
mod name;
mod resource_config;
mod systemd;
mod usage;

pub use driver::{CgroupSetupError, remove_all};
pub(crate) use usage::CgroupUsage;

use crate::{Options, node_resources::NodeResources, os_error};
use api::resources::{self, QosClass};
use driver::Driver;
use hierarchy::Hierarchy;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodSpec};
use name::CgroupName;
use resource_config::ResourceConfig;
use std::{collections::BTreeMap, io, sync::Arc, time::Duration};
use tokio::sync::Mutex;

/// Maximum time to remove the cgroups of unknown Pods. The next relist continues.
const ORPHANS_TIMEOUT: Duration = Duration::from_secs(20);

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
    kubepods: CgroupName,
    /// Path of `kubepods` with the driver.
    root: String,
    driver: Driver,
    /// `None` if Pods have no cgroups; the runtime then uses its default.
    hierarchy: Option<Hierarchy>,
    /// Why no hierarchy can be used, with the driver `systemd`.
    no_hierarchy: Option<String>,
    /// Limits of all Pods together.
    all_pods: ResourceConfig,
    /// Whether Node Allocatable is enforced for Pods.
    enforce: bool,
    quota_period: i64,
    pids: Option<i64>,
    single_process_oom_kill: bool,
    /// CPU shares of the Burstable class; with systemd, equal ones are not set again.
    burstable_shares: Mutex<Option<i64>>,
}

impl CgroupManager {
    /// Creates the cgroups for all Pods and for the QoS classes with the driver `cgroupfs`. On failure a warning is logged, and the
    /// runtime uses its default cgroups. With the driver `systemd`, [`CgroupManager::prepare`] creates them.
    pub(crate) fn new(options: &Options, node_resources: &NodeResources) -> Self {
        let config = &options.config;
        let root = config.cgroup_root.clone().unwrap_or_else(|| driver::default_root(&options.root_dir));
        let kubepods = CgroupName::parse(&root).join("kubepods");
        let enforce = config.enforce_node_allocatable.iter().any(|name| name == "pods");
        let driver = Driver::new(config.cgroups_per_qos && config.cgroup_driver == "systemd");
        let mut cgroups = Self {
            root: driver.path(&kubepods).unwrap_or_default(),
            kubepods,
            driver,
            hierarchy: None,
            no_hierarchy: None,
            all_pods: ResourceConfig::for_all_pods(&node_resources.unreserved, enforce),
            enforce,
            quota_period: i64::try_from(config.cpu_cfs_quota_period.as_micros())
                .unwrap_or(cpu_conversion::DEFAULT_PERIOD),
            pids: Some(config.pod_pids_limit).filter(|n| *n > 0),
            single_process_oom_kill: config.single_process_oom_kill.unwrap_or(false),
            burstable_shares: Mutex::new(None),
        };
        if !config.cgroups_per_qos {
            return cgroups;
        }
        let hierarchy = Hierarchy::detect();
        if cgroups.driver.is_systemd() {
            match hierarchy {
                Ok(hierarchy) => cgroups.hierarchy = Some(hierarchy),
                Err(error) => cgroups.no_hierarchy = Some(error.to_string()),
            }
            return cgroups;
        }
        match hierarchy.and_then(|h| cgroups.create_qos_directories(&h).map(|()| h)) {
            Ok(hierarchy) => cgroups.hierarchy = Some(hierarchy),
            Err(error) => tracing::warn!(%error, "failed to create cgroups, Pods get the runtime's default"),
        }
        cgroups
    }

    /// Creates the slices for all Pods and for the QoS classes with the driver `systemd`.
    ///
    /// # Errors
    /// When systemd does not create them, or processes of Pods run in the cgroups of the other driver.
    pub(crate) async fn prepare(&self) -> Result<(), CgroupSetupError> {
        if let Some(hierarchy) = &self.hierarchy {
            self.driver.check_other(hierarchy, &self.kubepods)?;
        }
        if !self.driver.is_systemd() {
            return Ok(());
        }
        self.driver.start(self.no_hierarchy.as_deref()).await?;
        self.ensure_qos_classes().await.map_err(CgroupSetupError::Systemd)
    }

    /// Returns whether Node Allocatable is enforced for Pods.
    pub(crate) fn enforces_node_allocatable(&self) -> bool {
        self.enforce && self.hierarchy.is_some()
    }

    /// Returns the cgroups of all Pods and of the QoS classes with their limits; Guaranteed Pods are directly below `kubepods`.
    fn qos_classes(&self, burstable_shares: Option<i64>) -> [(CgroupName, ResourceConfig); 3] {
        let min = cpu_conversion::MIN_SHARES;
        let class = |class, shares| (self.qos_cgroup(class), ResourceConfig::shares(shares));
        [
            (self.kubepods.clone(), self.all_pods.clone()),
            class(QosClass::Burstable, burstable_shares.unwrap_or(min)),
            class(QosClass::BestEffort, min),
        ]
    }

    fn create_qos_directories(&self, hierarchy: &Hierarchy) -> io::Result<()> {
        self.qos_classes(None)
            .iter()
            .try_for_each(|(name, limits)| hierarchy.set(&name.cgroupfs().map_err(io::Error::other)?, limits))
    }

    /// Creates the slices above those of Pods, unless they have their limits: systemd creates missing ones without limits.
    async fn ensure_qos_classes(&self) -> io::Result<()> {
        let Some(hierarchy) = &self.hierarchy else { return Ok(()) };
        let are_limited = || {
            let classes = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
            classes.into_iter().all(|class| self.driver.is_limited(hierarchy, &self.qos_cgroup(class)))
        };
        if are_limited() {
            return Ok(());
        }
        let burstable_shares = self.burstable_shares.lock().await;
        if are_limited() {
            return Ok(());
        }
        for (name, limits) in self.qos_classes(*burstable_shares) {
            self.set(&name, "cgroup of Podium", &limits).await?;
        }
        Ok(())
    }

    /// Creates a cgroup, or sets the limits of an existing one.
    async fn set(&self, name: &CgroupName, description: &str, limits: &ResourceConfig) -> io::Result<()> {
        match &self.hierarchy {
            Some(hierarchy) => self.driver.set(hierarchy, name, description, limits).await,
            None => Ok(()),
        }
    }

    fn qos_cgroup(&self, class: QosClass) -> CgroupName {
        match class {
            QosClass::Guaranteed => self.kubepods.clone(),
            QosClass::Burstable => self.kubepods.join("burstable"),
            QosClass::BestEffort => self.kubepods.join("besteffort"),
        }
    }

    /// Returns the name of a Pod's cgroup.
    fn name(&self, pod: &ApiPod) -> Option<CgroupName> {
        let class = resources::qos_class(pod.spec.as_ref()?);
        Some(self.qos_cgroup(class).join(format!("pod{}", pod.metadata.uid.as_deref()?)))
    }

    /// Returns the cgroup parent of a Pod's containers: an absolute path within the hierarchies.
    pub(crate) fn path(&self, pod: &ApiPod) -> Option<String> {
        self.hierarchy.as_ref()?;
        self.driver.path(&self.name(pod)?).ok()
    }

    /// Returns the cgroup of a container, whose parent is this one of a Pod.
    pub(crate) fn container_path(&self, parent: &str, container: &str) -> String {
        match &self.hierarchy {
            Some(hierarchy) => self.driver.container_path(hierarchy, parent, container),
            None => format!("{parent}/{container}"),
        }
    }

    /// Returns the files of a container's cgroup that follow from no limit, which only cgroup v2 has: the kernel kills all processes
    /// of a container that exceeds its memory limit, and the container does not swap (upstream's `NoSwap`).
    pub(crate) fn container_files(&self) -> BTreeMap<String, String> {
        let Some(hierarchy) = self.hierarchy.as_ref().filter(|hierarchy| hierarchy.is_v2()) else {
            return BTreeMap::new();
        };
        let if_exists = |name, value| hierarchy.has_file(&self.root, name).then_some((name, value));
        let group = if_exists("memory.oom.group", "1").filter(|_| !self.single_process_oom_kill);
        let swap = if_exists("memory.swap.max", "0");
        group.into_iter().chain(swap).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the cgroup of all Pods.
    pub(crate) fn root(&self) -> &str {
        &self.root
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
        let usage = self.usage(&self.root)?;
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Some((number(usage.memory_limit?), number(usage.working_set?)))
    }

    /// Creates the cgroup of a Pod and sets its limits.
    pub(crate) async fn create(&self, pod: &ApiPod) -> Result<(), CgroupError> {
        let (Some(name), Some(limits)) = (self.name(pod), self.limits(pod)) else { return Ok(()) };
        let set = self.set_pod(pod, &name, &limits).await;
        set.map_err(|source| CgroupError::Create { path: self.display(&name), source })
    }

    /// Creates the slice of a Pod again that was stopped: systemd would create it without limits for a container. Of a resize that is
    /// not complete, the larger limits count, as in [`CgroupManager::grow`].
    pub(crate) async fn ensure(&self, old_pod: impl FnOnce() -> ApiPod, pod: &ApiPod) -> Result<(), CgroupError> {
        let (Some(hierarchy), Some(name)) = (&self.hierarchy, self.name(pod)) else { return Ok(()) };
        let ensured = async {
            self.ensure_qos_classes().await?;
            if self.driver.is_limited(hierarchy, &name) {
                return Ok(());
            }
            match self.larger_limits(&old_pod(), pod) {
                Some(limits) => self.set_pod(pod, &name, &limits).await,
                None => Ok(()),
            }
        };
        ensured.await.map_err(|source| CgroupError::Create { path: self.display(&name), source })
    }

    /// Raises the limits of a Pod's cgroup to the larger of both specs.
    pub(crate) async fn grow(&self, old_pod: &ApiPod, new_pod: &ApiPod) -> Result<(), CgroupError> {
        let (Some(name), Some(limits)) = (self.name(new_pod), self.larger_limits(old_pod, new_pod)) else {
            return Ok(());
        };
        let set = self.set_pod(new_pod, &name, &limits).await;
        set.map_err(|source| CgroupError::Resize { path: self.display(&name), source })
    }

    fn limits(&self, pod: &ApiPod) -> Option<ResourceConfig> {
        let spec = pod.spec.as_ref()?;
        Some(ResourceConfig { pids: self.pids, ..ResourceConfig::for_pod(spec, self.quota_period) })
    }

    fn larger_limits(&self, old_pod: &ApiPod, new_pod: &ApiPod) -> Option<ResourceConfig> {
        Some(self.limits(old_pod)?.max_of(&self.limits(new_pod)?))
    }

    async fn set_pod(&self, pod: &ApiPod, name: &CgroupName, limits: &ResourceConfig) -> io::Result<()> {
        self.driver.check_started()?;
        if self.hierarchy.is_some() {
            self.driver.path(name).map_err(io::Error::other)?;
        }
        self.ensure_qos_classes().await?;
        self.set(name, &description(pod), limits).await
    }

    /// Returns a cgroup's path, also of a name that the driver cannot express.
    fn display(&self, name: &CgroupName) -> String {
        self.driver.path(name).unwrap_or_else(|_| format!("{name:?}"))
    }

    /// Returns the Pod's memory limit in bytes.
    pub(crate) fn memory_limit(&self, spec: &PodSpec) -> Option<i64> {
        ResourceConfig::for_pod(spec, self.quota_period).memory
    }

    /// Returns the memory usage of a Pod, or of one of its containers, in bytes.
    pub(crate) fn memory_usage(&self, pod: &ApiPod, container: Option<&str>) -> Option<i64> {
        let path = self.path(pod)?;
        let path = container.map_or_else(|| path.clone(), |id| self.container_path(&path, id));
        self.hierarchy.as_ref()?.memory_usage(&path)
    }

    /// Returns the number of OOM-killed processes of a container; `None` if its cgroup is missing.
    pub(crate) fn oom_kills(&self, pod: &ApiPod, container: &str) -> Option<u64> {
        self.hierarchy.as_ref()?.oom_kills(&self.container_path(&self.path(pod)?, container))
    }

    /// Removes the cgroup of a Pod and those below it. Processes that the runtime has lost are killed (upstream's
    /// `tryKillingCgroupProcesses`); exiting ones are waited for.
    pub(crate) async fn remove(&self, pod: &ApiPod) -> Result<(), CgroupError> {
        let (Some(hierarchy), Some(name)) = (&self.hierarchy, self.name(pod)) else { return Ok(()) };
        // A Pod that was refused for its name has no cgroup.
        let Ok(path) = self.driver.path(&name) else { return Ok(()) };
        let mut killed = 0;
        let removed = self.driver.remove(hierarchy, &name, || killed = hierarchy.kill(&path).max(killed)).await;
        removed.map_err(|source| CgroupError::Remove { path, source, killed })
    }

    /// Sets the CPU shares of the Burstable class to the sum of its Pods' requests (`qosContainerManager`).
    pub(crate) async fn update_burstable_shares(&self, pods: impl Fn() -> Vec<Arc<ApiPod>>) {
        let Some(hierarchy) = self.hierarchy.as_ref().filter(|_| self.driver.check_started().is_ok()) else { return };
        // Held until the shares are set, so that the newest are set last.
        let mut current = self.burstable_shares.lock().await;
        let pods = pods();
        let burstable =
            pods.iter().filter_map(|p| p.spec.as_ref()).filter(|s| resources::qos_class(s) == QosClass::Burstable);
        let cpu = burstable
            .map(resource_config::requested_cpu)
            .fold(api::quantity::Amount::ZERO, api::quantity::Amount::saturating_add);
        let shares = cpu_conversion::shares(cpu);
        let name = self.qos_cgroup(QosClass::Burstable);
        let is_set = *current == Some(shares) && self.driver.is_limited(hierarchy, &name);
        if self.driver.is_systemd() && is_set {
            return;
        }
        // Also if it fails: then the slice does not count as limited, and is set again.
        *current = Some(shares);
        if let Err(error) = self.set(&name, "cgroup of Podium", &ResourceConfig::shares(shares)).await {
            tracing::warn!(%error, "failed to set the CPU shares of Burstable Pods");
        }
    }

    /// Removes cgroups of unknown Pods, unless they have processes.
    pub(crate) async fn remove_orphans(&self, is_known: impl Fn(&str) -> bool) {
        let Some(hierarchy) = &self.hierarchy else { return };
        let remove = async {
            for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
                let parent = self.qos_cgroup(class);
                let Ok(dir) = self.driver.path(&parent) else { continue };
                for child in hierarchy.children(&dir) {
                    let Some(component) = self.driver.component(&child) else { continue };
                    if component.strip_prefix("pod").is_none_or(&is_known) {
                        continue;
                    }
                    if let Err(error) = self.driver.remove_if_unused(hierarchy, &parent.join(&component)).await {
                        tracing::debug!(%error, child, "failed to remove the cgroup of a removed Pod");
                    }
                }
            }
        };
        if tokio::time::timeout(ORPHANS_TIMEOUT, remove).await.is_err() {
            tracing::warn!("timed out removing the cgroups of removed Pods");
        }
    }
}

/// Returns the description of a Pod's unit.
fn description(pod: &ApiPod) -> String {
    let field = |field: &Option<String>| field.clone().unwrap_or_default();
    format!("Pod {}/{}", field(&pod.metadata.namespace), field(&pod.metadata.name))
}

#[cfg(test)]
mod tests;
