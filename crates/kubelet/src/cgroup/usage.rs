//! Resource usage of cgroups.

use super::hierarchy::Hierarchy;
use std::path::Path;

/// Resource usage of a cgroup with its descendants; `None` for values that the kernel does not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CgroupUsage {
    /// CPU time in nanoseconds.
    pub(crate) cpu: Option<u64>,
    /// Memory in bytes, including file cache.
    pub(crate) memory: Option<u64>,
    /// Working set in bytes: memory without inactive file cache.
    pub(crate) working_set: Option<u64>,
    /// Anonymous memory in bytes.
    pub(crate) rss: Option<u64>,
    /// Memory limit in bytes.
    pub(crate) memory_limit: Option<u64>,
    pub(crate) page_faults: Option<u64>,
    pub(crate) major_page_faults: Option<u64>,
    /// Swap in bytes.
    pub(crate) swap: Option<u64>,
    pub(crate) processes: Option<u64>,
}

/// In cgroup v1 a value near 2^63 means no limit.
const UNLIMITED: u64 = 1 << 62;

impl Hierarchy {
    /// Returns the usage of a cgroup; `None` if it is missing.
    pub(super) fn usage(&self, path: &str) -> Option<CgroupUsage> {
        let path = path.trim_start_matches('/');
        match self {
            Self::V1 { memory, pids, all, .. } => {
                let dir = Some(memory.join(path)).filter(|dir| dir.is_dir())?;
                // `cpuacct` may be a separate hierarchy.
                let cpu = all.iter().find_map(|root| read_number(&root.join(path), "cpuacct.usage"));
                let processes = pids.as_ref().and_then(|root| read_number(&root.join(path), "pids.current"));
                Some(CgroupUsage { cpu, processes, ..memory_v1(&dir) })
            }
            Self::V2(root) => Some(root.join(path)).filter(|dir| dir.is_dir()).map(|dir| usage_v2(&dir)),
        }
    }

    /// Returns the number of OOM-killed processes; `None` if the cgroup is missing.
    pub(super) fn oom_kills(&self, path: &str) -> Option<u64> {
        let path = path.trim_start_matches('/');
        let events = match self {
            Self::V1 { memory, .. } => FlatKeyedFile::read(&memory.join(path), "memory.oom_control"),
            Self::V2(root) => FlatKeyedFile::read(&root.join(path), "memory.events"),
        };
        events.get("oom_kill")
    }

    /// Returns the id of a process in a cgroup or below it.
    pub(super) fn process(&self, path: &str) -> Option<u32> {
        let root = match self {
            Self::V1 { memory, .. } => memory,
            Self::V2(root) => root,
        };
        first_process(&root.join(path.trim_start_matches('/')), MAX_DEPTH)
    }
}

/// Levels of child cgroups in which a process is searched.
const MAX_DEPTH: u32 = 4;

/// Finds a process. With cgroup v2 a container that runs systemd has its processes in child cgroups only.
fn first_process(dir: &Path, depth: u32) -> Option<u32> {
    let all = crate::host_file::read_text(dir.join("cgroup.procs")).ok()?;
    if let Some(pid) = all.lines().find_map(|line| line.parse().ok().filter(|pid| *pid != 0)) {
        return Some(pid);
    }
    let entries = std::fs::read_dir(dir).ok().filter(|_| depth > 0)?.flatten();
    let mut children = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    children.find_map(|child| first_process(&child.path(), depth - 1))
}

fn memory_v1(dir: &Path) -> CgroupUsage {
    let (memory, stat) = (read_number(dir, "memory.usage_in_bytes"), FlatKeyedFile::read(dir, "memory.stat"));
    CgroupUsage {
        memory,
        working_set: working_set(memory, stat.get("total_inactive_file")),
        rss: stat.get("total_rss"),
        memory_limit: read_number(dir, "memory.limit_in_bytes").filter(|limit| *limit < UNLIMITED),
        page_faults: stat.get("total_pgfault"),
        major_page_faults: stat.get("total_pgmajfault"),
        swap: stat.get("total_swap"),
        ..CgroupUsage::default()
    }
}

fn usage_v2(dir: &Path) -> CgroupUsage {
    let (memory, stat) = (read_number(dir, "memory.current"), FlatKeyedFile::read(dir, "memory.stat"));
    CgroupUsage {
        cpu: FlatKeyedFile::read(dir, "cpu.stat").get("usage_usec").map(|us| us * 1000),
        memory,
        working_set: working_set(memory, stat.get("inactive_file")),
        rss: stat.get("anon"),
        memory_limit: read_number(dir, "memory.max"),
        page_faults: stat.get("pgfault"),
        major_page_faults: stat.get("pgmajfault"),
        swap: read_number(dir, "memory.swap.current"),
        processes: read_number(dir, "pids.current"),
    }
}

fn working_set(memory: Option<u64>, inactive_file: Option<u64>) -> Option<u64> {
    Some(memory?.saturating_sub(inactive_file.unwrap_or(0)))
}

fn read_number(dir: &Path, file: &str) -> Option<u64> {
    crate::host_file::read_text(dir.join(file)).ok()?.trim().parse().ok()
}

/// Flat keyed file, with one name and number per line.
struct FlatKeyedFile(String);

impl FlatKeyedFile {
    fn read(dir: &Path, file: &str) -> Self {
        Self(crate::host_file::read_text(dir.join(file)).unwrap_or_default())
    }

    fn get(&self, name: &str) -> Option<u64> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = dir.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    const EXPECTED: CgroupUsage = CgroupUsage {
        cpu: Some(5_000_000),
        memory: Some(1000),
        working_set: Some(900),
        rss: Some(300),
        memory_limit: Some(4096),
        page_faults: Some(7),
        major_page_faults: Some(2),
        swap: Some(11),
        processes: Some(3),
    };

    #[test]
    fn usage_is_equal_for_both_cgroup_versions() {
        let dir = tempfile::tempdir().unwrap();
        let root = |name: &str| dir.path().join(name);
        write(
            dir.path(),
            &[
                ("memory/p/memory.usage_in_bytes", "1000\n"),
                ("memory/p/memory.limit_in_bytes", "4096\n"),
                (
                    "memory/p/memory.stat",
                    "inactive_file 1\ntotal_rss 300\ntotal_swap 11\ntotal_pgfault 7\ntotal_pgmajfault 2\ntotal_inactive_file 100\n",
                ),
                ("cpuacct/p/cpuacct.usage", "5000000\n"),
                ("pids/p/pids.current", "3\n"),
            ],
        );
        let all = ["cpu", "cpuacct", "memory", "pids"].map(root).to_vec();
        let v1 = Hierarchy::V1 { cpu: root("cpu"), memory: root("memory"), pids: Some(root("pids")), all };
        assert_eq!(v1.usage("/p"), Some(EXPECTED));
        write(
            dir.path(),
            &[
                ("v2/p/memory.current", "1000\n"),
                ("v2/p/memory.max", "4096\n"),
                ("v2/p/memory.swap.current", "11\n"),
                ("v2/p/memory.stat", "anon 300\ninactive_file 100\npgfault 7\npgmajfault 2\n"),
                ("v2/p/cpu.stat", "usage_usec 5000\nuser_usec 1\n"),
                ("v2/p/pids.current", "3\n"),
            ],
        );
        assert_eq!(Hierarchy::V2(root("v2")).usage("/p"), Some(EXPECTED));
    }

    #[test]
    fn process_is_found_in_child_cgroups() {
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            &[
                ("p/cgroup.procs", "7\n8\n"),
                // With cgroup v2 a cgroup with controlled children has no processes itself.
                ("systemd/cgroup.procs", ""),
                ("systemd/init.scope/cgroup.procs", "9\n"),
                ("other-namespace/cgroup.procs", "0\n"),
                ("1/cgroup.procs", ""),
                ("1/2/cgroup.procs", ""),
                ("1/2/3/cgroup.procs", ""),
                ("1/2/3/4/cgroup.procs", ""),
                ("1/2/3/4/5/cgroup.procs", ""),
                ("1/2/3/4/5/6/cgroup.procs", "10\n"),
            ],
        );
        let v2 = Hierarchy::V2(dir.path().to_owned());
        let found = ["/p", "/systemd", "/other-namespace", "/1", "/nothing"].map(|path| v2.process(path));
        assert_eq!(found, [Some(7), Some(9), None, None, None]);
    }

    #[test]
    fn oom_kills_are_read_from_both_cgroup_versions() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        write(
            dir.path(),
            &[
                ("p/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
                ("p/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n"),
                // Kernels before 4.13 have no counter.
                ("q/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n"),
            ],
        );
        let v1 = Hierarchy::V1 { cpu: root.clone(), memory: root.clone(), pids: None, all: Vec::new() };
        assert_eq!(["/p", "/q", "/r"].map(|path| v1.oom_kills(path)), [Some(2), None, None]);
        assert_eq!(["/p", "/r"].map(|path| Hierarchy::V2(root.clone()).oom_kills(path)), [Some(3), None]);
    }

    #[test]
    fn missing_limit_and_missing_cgroup_are_none() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[("p/memory.limit_in_bytes", "9223372036854771712\n"), ("q/memory.max", "max\n")]);
        let root = dir.path().to_owned();
        let v1 = Hierarchy::V1 { cpu: root.clone(), memory: root.clone(), pids: None, all: Vec::new() };
        assert_eq!(v1.usage("p"), Some(CgroupUsage::default()));
        assert_eq!(Hierarchy::V2(root).usage("q"), Some(CgroupUsage::default()));
        assert_eq!(v1.usage("nothing"), None);
    }
}
