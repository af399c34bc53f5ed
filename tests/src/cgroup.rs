//! Where the cgroups of Pods are on this machine.

use std::path::{Path, PathBuf};

/// The cgroup of a Pod that has this controller, below whichever root is its cluster's.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn pod_cgroup(controller: &str, uid: &str) -> PathBuf {
    // A hierarchy of its own, or the only one.
    let own = Path::new("/sys/fs/cgroup").join(controller);
    let hierarchy = if own.is_dir() { own } else { PathBuf::from("/sys/fs/cgroup") };
    let roots: Vec<PathBuf> = std::fs::read_dir(&hierarchy).expect("a hierarchy").flatten().map(|e| e.path()).collect();
    let classes = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
    let all = roots.iter().flat_map(|root| classes.map(|class| root.join(class).join(format!("pod{uid}"))));
    let found = all.into_iter().find(|path| path.is_dir());
    found.unwrap_or_else(|| panic!("the Pod {uid} has no cgroup in {}", hierarchy.display()))
}
