//! The cgroups that hold Pods: `ROOT/kubepods[/burstable|/besteffort]/pod<UID>`, on cgroup v1 and v2, as upstream's
//! driver `cgroupfs` makes them (`pkg/kubelet/cm`).
//!
//! ROOT belongs to the data directory, so that several Podiums on one machine never meet. The runtime makes the
//! containers' cgroups below a Pod's.

mod hierarchy;
mod limits;
mod usage;
pub(crate) mod values;

pub(crate) use usage::Usage;

use crate::{Options, machine::Machine, os_error};
use api::resources::{self, QosClass};
use hierarchy::Hierarchy;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodSpec};
use limits::Limits;
use sha2::{Digest, Sha256};
use std::{io, path::Path, time::Duration};

/// How long the last processes of a cgroup may take to be gone.
const BUSY: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// The cgroups of all Pods of this kubelet.
pub(crate) struct Cgroups {
    /// `ROOT/kubepods`.
    kubepods: String,
    /// `None` where Pods get no cgroups of their own: then they are the runtime's affair.
    hierarchy: Option<Hierarchy>,
    /// Whether all Pods together are held to what the node has for them.
    enforce: bool,
    quota_period: i64,
    pids: Option<i64>,
}

impl Cgroups {
    /// Makes what all Pods have in common. Where that cannot be done the runtime puts Pods where it likes, and a
    /// warning says so.
    pub(crate) fn prepare(options: &Options, machine: &Machine) -> Self {
        let config = &options.config;
        let root = config.cgroup_root.clone().unwrap_or_else(|| own_root(&options.root_dir));
        let mut cgroups = Self {
            kubepods: format!("{}/kubepods", root.trim_end_matches('/')),
            hierarchy: None,
            enforce: config.enforce_node_allocatable.iter().any(|what| what == "pods"),
            quota_period: i64::try_from(config.cpu_cfs_quota_period.as_micros()).unwrap_or(values::PERIOD),
            pids: Some(config.pod_pids_limit).filter(|n| *n > 0),
        };
        if !config.cgroups_per_qos {
            return cgroups;
        }
        let hierarchy = if config.cgroup_driver == "cgroupfs" {
            Hierarchy::detect()
        } else {
            Err(io::Error::other(format!("cgroupDriver {:?} is not implemented yet", config.cgroup_driver)))
        };
        let made = hierarchy.and_then(|h| cgroups.make_classes(&h, machine).map(|()| h));
        match made {
            Ok(hierarchy) => cgroups.hierarchy = Some(hierarchy),
            Err(error) => tracing::warn!(%error, "Pods get no cgroups of their own"),
        }
        cgroups
    }

    /// Whether all Pods together are held to what the node has for them.
    pub(crate) fn limit_all_pods(&self) -> bool {
        self.enforce && self.hierarchy.is_some()
    }

    /// The cgroups of the quality-of-service classes; what is guaranteed lies directly in `kubepods`.
    fn make_classes(&self, hierarchy: &Hierarchy, machine: &Machine) -> io::Result<()> {
        hierarchy.set(&self.kubepods, &Limits::of_all_pods(&machine.unreserved, self.enforce))?;
        for class in [QosClass::Burstable, QosClass::BestEffort] {
            hierarchy.set(&self.class_path(class), &Limits::shares(values::MIN_SHARES))?;
        }
        Ok(())
    }

    fn class_path(&self, class: QosClass) -> String {
        match class {
            QosClass::Guaranteed => self.kubepods.clone(),
            QosClass::Burstable => format!("{}/burstable", self.kubepods),
            QosClass::BestEffort => format!("{}/besteffort", self.kubepods),
        }
    }

    /// What the runtime takes for the parent of a Pod's containers: an absolute path within the hierarchies.
    pub(crate) fn path(&self, pod: &ApiPod) -> Option<String> {
        self.hierarchy.as_ref()?;
        let class = resources::qos_class(pod.spec.as_ref()?);
        Some(format!("{}/pod{}", self.class_path(class), pod.metadata.uid.as_deref()?))
    }

    /// The cgroup of all Pods.
    pub(crate) fn root(&self) -> &str {
        &self.kubepods
    }

    /// What the processes in a cgroup use; `None` when it is not there.
    pub(crate) fn usage(&self, path: &str) -> Option<Usage> {
        self.hierarchy.as_ref()?.usage(path)
    }

    /// A process in a cgroup.
    pub(crate) fn process(&self, path: &str) -> Option<u32> {
        self.hierarchy.as_ref()?.process(path)
    }

    /// The memory that all Pods together may use, and what of it they cannot do without; `None` when it is not limited.
    pub(crate) fn all_pods(&self) -> Option<(i64, i64)> {
        let usage = self.usage(&self.kubepods)?;
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Some((number(usage.memory_limit?), number(usage.working_set?)))
    }

    /// Makes the cgroup of a Pod and sets its limits.
    pub(crate) fn create(&self, pod: &ApiPod) -> Result<(), String> {
        let (Some(hierarchy), Some(path), Some(spec)) = (&self.hierarchy, self.path(pod), &pod.spec) else {
            return Ok(());
        };
        let limits = Limits { pids: self.pids, ..Limits::of_pod(spec, self.quota_period) };
        let failed =
            |e: io::Error| format!("failed to ensure that the pod's cgroup {path} exists: {}", os_error::words(&e));
        hierarchy.set(&path, &limits).map_err(failed)
    }

    /// Makes the cgroup of a Pod at least as large as it was and as it is to be.
    pub(crate) fn grow(&self, before: &ApiPod, after: &ApiPod) -> Result<(), String> {
        let (Some(hierarchy), Some(path), Some(old), Some(new)) =
            (&self.hierarchy, self.path(after), &before.spec, &after.spec)
        else {
            return Ok(());
        };
        let limits = Limits::of_pod(old, self.quota_period).or_more(&Limits::of_pod(new, self.quota_period));
        let failed = |e: io::Error| format!("the pod's cgroup {path} could not be resized: {}", os_error::words(&e));
        hierarchy.set(&path, &limits).map_err(failed)
    }

    /// What all containers of a Pod may use together, in bytes.
    pub(crate) fn memory_limit(&self, spec: &PodSpec) -> Option<i64> {
        Limits::of_pod(spec, self.quota_period).memory
    }

    /// What a Pod, or one of its containers, uses now, in bytes.
    pub(crate) fn memory_usage(&self, pod: &ApiPod, container: Option<&str>) -> Option<i64> {
        let path = self.path(pod)?;
        let path = container.map_or_else(|| path.clone(), |id| format!("{path}/{id}"));
        self.hierarchy.as_ref()?.memory_usage(&path)
    }

    /// How many processes of a container the kernel has killed for lack of memory; `None` when nobody knows any more.
    pub(crate) fn oom_kills(&self, pod: &ApiPod, container: &str) -> Option<u64> {
        self.hierarchy.as_ref()?.oom_kills(&format!("{}/{container}", self.path(pod)?))
    }

    /// Removes the cgroup of a Pod, and what the runtime left below it. A process of which it knows nothing any more is
    /// killed (upstream's `tryKillingCgroupProcesses`); one that ends just now is waited for.
    pub(crate) async fn remove(&self, pod: &ApiPod) -> Result<(), String> {
        let (Some(hierarchy), Some(path)) = (&self.hierarchy, self.path(pod)) else { return Ok(()) };
        let mut killed = 0;
        let removed = remove_when_empty(hierarchy, &path, || killed = hierarchy.kill(&path).max(killed)).await;
        removed.map_err(|error| {
            let why = os_error::words(&error);
            format!("removing the cgroup {path}: {why}, {killed} of its processes were killed")
        })
    }

    /// Burstable Pods together weigh what they ask for (`qosContainerManager`).
    pub(crate) fn weigh_burstable<'a>(&self, pods: impl Iterator<Item = &'a ApiPod>) {
        let Some(hierarchy) = &self.hierarchy else { return };
        let burstable = pods.filter_map(|p| p.spec.as_ref()).filter(|s| resources::qos_class(s) == QosClass::Burstable);
        let cpu = burstable.map(limits::requested_cpu).fold(api::quantity::Amount::ZERO, api::quantity::Amount::plus);
        let path = self.class_path(QosClass::Burstable);
        if let Err(error) = hierarchy.set(&path, &Limits::shares(values::shares(cpu))) {
            tracing::warn!(%error, "the weight of burstable Pods could not be set");
        }
    }

    /// Removes cgroups of Pods that are not known any more. What still holds a process stays.
    pub(crate) fn remove_orphans(&self, is_known: impl Fn(&str) -> bool) {
        let Some(hierarchy) = &self.hierarchy else { return };
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            let dir = self.class_path(class);
            for name in hierarchy.children(&dir) {
                if name.strip_prefix("pod").is_some_and(|uid| !is_known(uid))
                    && let Err(error) = hierarchy.remove(&format!("{dir}/{name}"))
                {
                    tracing::debug!(%error, name, "the cgroup of a Pod that is gone could not be removed");
                }
            }
        }
    }
}

/// Removes all cgroups of a data directory's Pods, once nothing runs in them any more. Who was just killed may still be
/// on the way out, so it tries for a while.
///
/// # Errors
/// When one of them cannot be removed, for example because a process is still in it.
pub async fn remove_all(root_dir: &Path) -> io::Result<()> {
    let Ok(hierarchy) = Hierarchy::detect() else { return Ok(()) };
    remove_when_empty(&hierarchy, &own_root(root_dir), || {}).await
}

/// Removes a cgroup once the last of its processes is gone: the kernel keeps it a moment longer than their exit codes.
async fn remove_when_empty(hierarchy: &Hierarchy, path: &str, mut at_busy: impl FnMut()) -> io::Result<()> {
    let deadline = tokio::time::Instant::now() + BUSY;
    loop {
        match hierarchy.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && tokio::time::Instant::now() < deadline => {
                at_busy();
                tokio::time::sleep(LOOK).await;
            }
            done => return done,
        }
    }
}

/// A cgroup of the data directory's own.
fn own_root(root_dir: &Path) -> String {
    let hash = Sha256::digest(root_dir.as_os_str().as_encoded_bytes());
    let short: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("/podium-{short}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use serde_json::{Value, json};
    use std::fs;

    fn cgroups(dir: &Path) -> Cgroups {
        let hierarchy = Some(Hierarchy::V2(dir.to_owned()));
        Cgroups {
            kubepods: "/r/kubepods".to_owned(),
            hierarchy,
            enforce: true,
            quota_period: values::PERIOD,
            pids: None,
        }
    }

    fn pod(uid: &str, resources: &Value) -> ApiPod {
        let containers = json!([{"name": "c", "resources": resources}]);
        serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {"containers": containers}})).unwrap()
    }

    #[test]
    fn the_class_of_a_pod_decides_where_it_is() {
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

    /// The kernel refuses to remove a mount point as it refuses a cgroup with a process.
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
    fn data_directories_have_cgroups_of_their_own() {
        assert_ne!(own_root(Path::new("/a")), own_root(Path::new("/b")));
        assert!(own_root(Path::new("/a")).starts_with("/podium-"));
    }

    #[test]
    fn burstable_pods_weigh_what_they_ask_for_and_orphans_go() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = cgroups(dir.path());
        let pods = [pod("a", &json!({"requests": {"cpu": "1"}})), pod("b", &json!({"requests": {"cpu": "500m"}}))];
        pods.iter().for_each(|p| cgroups.create(p).unwrap());
        cgroups.weigh_burstable(pods.iter().chain([&pod("c", &json!({}))]));
        let burstable = dir.path().join("r/kubepods/burstable");
        assert_eq!(crate::node_file::read_text(burstable.join("cpu.weight")).unwrap(), "59");
        // A plain directory's files do not go by themselves, as a cgroup's do.
        for file in ["cpu.weight", "cgroup.subtree_control"] {
            let _ = fs::remove_file(burstable.join("podb").join(file));
        }
        cgroups.remove_orphans(|uid| uid == "a");
        assert!(burstable.join("poda").exists() && !burstable.join("podb").exists());
    }
}
