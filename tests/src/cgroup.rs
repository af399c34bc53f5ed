//! Paths of the cgroups of Pods.

use std::path::{Path, PathBuf};

/// Returns the cgroup directory of a Pod with the given UID for a cgroup v1 controller, or in the unified hierarchy.
///
/// # Panics
/// When there is no such cgroup.
#[must_use]
pub fn pod_cgroup(controller: &str, uid: &str) -> PathBuf {
    // Cgroup v1 has a hierarchy per controller; v2 has one for all.
    let v1 = Path::new("/sys/fs/cgroup").join(controller);
    let hierarchy = if v1.is_dir() { v1 } else { PathBuf::from("/sys/fs/cgroup") };
    let roots: Vec<PathBuf> = std::fs::read_dir(&hierarchy).expect("a hierarchy").flatten().map(|e| e.path()).collect();
    let classes = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
    let all = roots.iter().flat_map(|root| classes.map(|class| root.join(class).join(format!("pod{uid}"))));
    let found = all.into_iter().find(|path| path.is_dir());
    found.unwrap_or_else(|| panic!("the Pod {uid} has no cgroup in {}", hierarchy.display()))
}
