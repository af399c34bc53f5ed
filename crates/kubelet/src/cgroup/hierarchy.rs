//! Cgroup hierarchies of this machine.

use super::{cpu_conversion::weight, resource_config::ResourceConfig};
use crate::os_error::PathError;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Mounted cgroup hierarchies.
pub(super) enum Hierarchy {
    /// One for each controller; there may be an unused v2 hierarchy, too.
    V1 {
        cpu: PathBuf,
        memory: PathBuf,
        pids: Option<PathBuf>,
        /// All hierarchies, in any of which the runtime may create cgroups.
        all: Vec<PathBuf>,
    },
    /// Unified hierarchy.
    V2(PathBuf),
}

/// Identity of a cgroup: the inode numbers of its directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CgroupId(u64, u64);

impl Hierarchy {
    /// Detects the mounted hierarchies.
    ///
    /// # Errors
    /// Fails if none is writable.
    pub(super) fn detect() -> io::Result<Self> {
        let found = Self::parse(&crate::host_file::read_text("/proc/self/mountinfo")?);
        let found = found.ok_or_else(|| io::Error::other("no cgroup file system is mounted"))?;
        let probe = match &found {
            Self::V1 { memory, .. } => memory,
            Self::V2(root) => root,
        };
        nix::unistd::access(probe, nix::unistd::AccessFlags::W_OK)
            .map_err(|e| io::Error::new(io::Error::from(e).kind(), format!("{}: {e}", probe.display())))?;
        Ok(found)
    }

    fn parse(mountinfo: &str) -> Option<Self> {
        let (mut cpu, mut memory, mut pids, mut all, mut v2) = (None, None, None, Vec::new(), None);
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let Some(point) = left.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut right = right.split(' ');
            match right.next() {
                Some("cgroup2") => {
                    v2.get_or_insert(point.clone());
                    all.push(point);
                }
                Some("cgroup") => {
                    let options = right.next_back().unwrap_or_default();
                    let has = |controller: &str| options.split(',').any(|o| o == controller);
                    if has("cpu") {
                        cpu.get_or_insert(point.clone());
                    }
                    if has("memory") {
                        memory.get_or_insert(point.clone());
                    }
                    if has("pids") {
                        pids.get_or_insert(point.clone());
                    }
                    all.push(point);
                }
                _ => {}
            }
        }
        match (cpu, memory) {
            (Some(cpu), Some(memory)) => Some(Self::V1 { cpu, memory, pids, all }),
            _ => v2.map(Self::V2),
        }
    }

    pub(super) fn is_v2(&self) -> bool {
        matches!(self, Self::V2(_))
    }

    /// Returns whether a cgroup has this file in one of the hierarchies.
    pub(super) fn has_file(&self, path: &str, file: &str) -> bool {
        let path = path.trim_start_matches('/');
        self.roots().iter().any(|root| root.join(path).join(file).exists())
    }

    /// Creates a cgroup if it is missing, and sets its limits. The path is absolute within the hierarchies.
    pub(super) fn set(&self, path: &str, limits: &ResourceConfig) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        match self {
            Self::V1 { cpu, memory, pids, .. } => {
                let (cpu, memory) = (create_cgroup(cpu, path)?, create_cgroup(memory, path)?);
                write_value(&cpu, "cpu.shares", limits.shares)?;
                if let Some((quota, period)) = limits.quota {
                    write_value(&cpu, "cpu.cfs_period_us", period)?;
                    write_value(&cpu, "cpu.cfs_quota_us", quota)?;
                }
                if let Some(bytes) = limits.memory {
                    write_value(&memory, "memory.limit_in_bytes", bytes)?;
                }
                match (limits.pids, pids) {
                    (Some(max), Some(pids)) => write_value(&create_cgroup(pids, path)?, "pids.max", max),
                    _ => Ok(()),
                }
            }
            Self::V2(root) => {
                let group = create_cgroup_v2(root, path)?;
                write_value(&group, "cpu.weight", weight(limits.shares))?;
                if let Some((quota, period)) = limits.quota {
                    write_value(&group, "cpu.max", format!("{quota} {period}"))?;
                }
                if let Some(bytes) = limits.memory {
                    write_value(&group, "memory.max", bytes)?;
                }
                limits.pids.map_or(Ok(()), |max| write_value(&group, "pids.max", max))
            }
        }
    }

    /// Returns whether a cgroup has all the controllers that limit it.
    pub(super) fn exists(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        match self {
            Self::V1 { cpu, memory, .. } => cpu.join(path).is_dir() && memory.join(path).is_dir(),
            Self::V2(root) => root.join(path).is_dir(),
        }
    }

    /// Returns the inode numbers of a cgroup; `None` if it is missing. A cgroup that is created again has others.
    pub(super) fn identity(&self, path: &str) -> Option<CgroupId> {
        let path = path.trim_start_matches('/');
        let inode = |root: &Path| fs::metadata(root.join(path)).ok().map(|found| found.ino());
        match self {
            Self::V1 { cpu, memory, .. } => Some(CgroupId(inode(cpu)?, inode(memory)?)),
            Self::V2(root) => inode(root).map(|inode| CgroupId(inode, inode)),
        }
    }

    /// Returns whether a cgroup or one below it has processes.
    pub(super) fn has_processes(&self, path: &str) -> bool {
        let mut found = BTreeSet::new();
        self.roots().iter().any(|root| {
            collect_pids(&root.join(path.trim_start_matches('/')), &mut found);
            !found.is_empty()
        })
    }

    /// Returns the memory usage in bytes; `None` if the cgroup is missing.
    pub(super) fn memory_usage(&self, path: &str) -> Option<i64> {
        let path = path.trim_start_matches('/');
        let file = match self {
            Self::V1 { memory, .. } => memory.join(path).join("memory.usage_in_bytes"),
            Self::V2(root) => root.join(path).join("memory.current"),
        };
        crate::host_file::read_text(file).ok()?.trim().parse().ok()
    }

    /// Returns the names of child cgroups in all hierarchies.
    pub(super) fn children(&self, path: &str) -> BTreeSet<String> {
        let dirs = self.roots().iter().map(|root| root.join(path.trim_start_matches('/')));
        let entries = dirs.filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
        let groups = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        groups.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }

    fn roots(&self) -> &[PathBuf] {
        match self {
            Self::V1 { all, .. } => all,
            Self::V2(root) => std::slice::from_ref(root),
        }
    }

    /// Removes a cgroup and its descendants in all hierarchies.
    pub(super) fn remove(&self, path: &str) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        self.roots().iter().try_for_each(|root| remove_tree(&root.join(path)))
    }

    /// Kills all processes of a cgroup and its descendants; returns their number.
    pub(super) fn kill(&self, path: &str) -> usize {
        let mut found = BTreeSet::new();
        self.roots().iter().for_each(|root| collect_pids(&root.join(path.trim_start_matches('/')), &mut found));
        found.iter().filter(|pid| signal::kill(Pid::from_raw(**pid), Signal::SIGKILL).is_ok()).count()
    }
}

fn create_cgroup(root: &Path, path: &str) -> io::Result<PathBuf> {
    let dir = root.join(path);
    files::create_dir_all_with_mode(&dir, 0o755)?;
    Ok(dir)
}

/// Creates a cgroup on v2, and enables the controllers on each level.
fn create_cgroup_v2(root: &Path, path: &str) -> io::Result<PathBuf> {
    let mut dir = root.to_owned();
    for part in path.split('/') {
        let control = dir.join("cgroup.subtree_control");
        for controller in ["+cpu", "+memory", "+pids"] {
            // A missing controller is reported when a limit is set.
            let _ = fs::write(&control, controller);
        }
        dir.push(part);
        if !dir.is_dir() {
            files::create_dir_all_with_mode(&dir, 0o755)?;
        }
    }
    Ok(dir)
}

fn write_value(dir: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = dir.join(file);
    fs::write(&path, value.to_string()).map_err(|error| PathError::new("write", &path, error).into())
}

/// Removes cgroup directories from the innermost; their files are removed by the kernel.
fn remove_tree(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Collects the processes of a cgroup and its descendants. Those of other PID namespaces are listed as 0.
fn collect_pids(dir: &Path, found: &mut BTreeSet<i32>) {
    let listed = crate::host_file::read_text(dir.join("cgroup.procs")).unwrap_or_default();
    found.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 1));
    let below = fs::read_dir(dir).into_iter().flatten().flatten();
    below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).for_each(|e| collect_pids(&e.path(), found));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ResourceConfig =
        ResourceConfig { shares: 1024, quota: Some((50_000, 100_000)), memory: Some(1 << 20), pids: Some(9) };

    fn v1(dir: &Path) -> Hierarchy {
        let [cpu, memory, pids] = ["cpu", "memory", "pids"].map(|name| dir.join(name));
        Hierarchy::V1 { all: vec![cpu.clone(), memory.clone(), pids.clone()], cpu, memory, pids: Some(pids) }
    }

    #[test]
    fn mounted_hierarchies_are_detected() {
        let mounts = "1 2 0:1 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n1 2 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n1 2 0:1 / /cg/unified rw - cgroup2 cgroup2 rw\n";
        match Hierarchy::parse(mounts).unwrap() {
            Hierarchy::V1 { cpu, memory, pids, all } => {
                assert_eq!((cpu, memory, pids, all.len()), ("/cg/cpu".into(), "/cg/memory".into(), None, 3));
            }
            Hierarchy::V2(_) => panic!("an empty v2 beside v1 is not used"),
        }
        let v2 = "1 2 0:1 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        assert!(matches!(Hierarchy::parse(v2), Some(Hierarchy::V2(root)) if root == Path::new("/sys/fs/cgroup")));
        assert!(Hierarchy::parse("1 2 0:1 / / rw - ext4 /dev/vda rw\n").is_none());
    }

    #[test]
    fn limits_are_written_to_the_files_of_each_cgroup_version() {
        let dir = tempfile::tempdir().unwrap();
        let v2 = dir.path().join("v2");
        fs::create_dir(&v2).unwrap();
        for (hierarchy, file, expected) in [
            (v1(dir.path()), "cpu/r/p/cpu.shares", "1024"),
            (v1(dir.path()), "cpu/r/p/cpu.cfs_quota_us", "50000"),
            (v1(dir.path()), "memory/r/p/memory.limit_in_bytes", "1048576"),
            (v1(dir.path()), "pids/r/p/pids.max", "9"),
            (Hierarchy::V2(v2.clone()), "v2/r/p/cpu.weight", "39"),
            (Hierarchy::V2(v2.clone()), "v2/r/p/cpu.max", "50000 100000"),
            (Hierarchy::V2(v2.clone()), "v2/r/p/memory.max", "1048576"),
            (Hierarchy::V2(v2.clone()), "v2/r/p/pids.max", "9"),
            (Hierarchy::V2(v2.clone()), "v2/r/cgroup.subtree_control", "+pids"),
        ] {
            hierarchy.set("/r/p", &LIMITS).unwrap();
            assert_eq!(crate::host_file::read_text(dir.path().join(file)).unwrap(), expected, "{file}");
        }
    }

    #[test]
    fn cgroup_is_removed_with_its_descendants() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("cpu/r/podu/container")).unwrap();
        fs::create_dir_all(dir.path().join("pids/r/podv")).unwrap();
        let v1 = v1(dir.path());
        assert_eq!(v1.children("/r").into_iter().collect::<Vec<_>>(), ["podu", "podv"]);
        v1.remove("/r/podu").unwrap();
        v1.remove("/r/podu").unwrap();
        assert_eq!(v1.children("/r").into_iter().collect::<Vec<_>>(), ["podv"]);
    }
}
