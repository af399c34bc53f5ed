//! What the processes in a cgroup use.

use super::hierarchy::Hierarchy;
use std::path::Path;

/// What the processes in a cgroup, and in those below it, use. What the machine does not tell is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// CPU time, in nanoseconds.
    pub(crate) cpu: Option<u64>,
    /// Bytes, file cache included.
    pub(crate) memory: Option<u64>,
    /// Bytes that cannot be dropped without harm: all but the file cache that nobody uses.
    pub(crate) working_set: Option<u64>,
    /// Bytes of no file.
    pub(crate) rss: Option<u64>,
    /// Bytes at most.
    pub(crate) memory_limit: Option<u64>,
    pub(crate) page_faults: Option<u64>,
    pub(crate) major_page_faults: Option<u64>,
    /// Bytes.
    pub(crate) swap: Option<u64>,
    pub(crate) processes: Option<u64>,
}

/// cgroup v1 writes a number near 2^63 for no limit.
const UNLIMITED: u64 = 1 << 62;

impl Hierarchy {
    /// What the processes below this path use; `None` when there is no such cgroup.
    pub(super) fn usage(&self, path: &str) -> Option<Usage> {
        let path = path.trim_start_matches('/');
        match self {
            Self::V1 { memory, pids, all, .. } => {
                let dir = Some(memory.join(path)).filter(|dir| dir.is_dir())?;
                // CPU time is told by `cpuacct`, which may be a hierarchy of its own.
                let cpu = all.iter().find_map(|root| number(&root.join(path), "cpuacct.usage"));
                let processes = pids.as_ref().and_then(|root| number(&root.join(path), "pids.current"));
                Some(Usage { cpu, processes, ..memory_v1(&dir) })
            }
            Self::V2(root) => Some(root.join(path)).filter(|dir| dir.is_dir()).map(|dir| of_v2(&dir)),
        }
    }

    /// How many processes of this cgroup the kernel has killed for lack of memory; `None` when there is no such cgroup.
    pub(super) fn oom_kills(&self, path: &str) -> Option<u64> {
        let path = path.trim_start_matches('/');
        let events = match self {
            Self::V1 { memory, .. } => Stat::read(&memory.join(path), "memory.oom_control"),
            Self::V2(root) => Stat::read(&root.join(path), "memory.events"),
        };
        events.get("oom_kill")
    }

    /// A process in this cgroup.
    pub(super) fn process(&self, path: &str) -> Option<u32> {
        let root = match self {
            Self::V1 { memory, .. } => memory,
            Self::V2(root) => root,
        };
        let all = crate::node_file::read_text(root.join(path.trim_start_matches('/')).join("cgroup.procs")).ok()?;
        all.lines().next()?.parse().ok()
    }
}

fn memory_v1(dir: &Path) -> Usage {
    let (memory, stat) = (number(dir, "memory.usage_in_bytes"), Stat::read(dir, "memory.stat"));
    Usage {
        memory,
        working_set: working_set(memory, stat.get("total_inactive_file")),
        rss: stat.get("total_rss"),
        memory_limit: number(dir, "memory.limit_in_bytes").filter(|limit| *limit < UNLIMITED),
        page_faults: stat.get("total_pgfault"),
        major_page_faults: stat.get("total_pgmajfault"),
        swap: stat.get("total_swap"),
        ..Usage::default()
    }
}

fn of_v2(dir: &Path) -> Usage {
    let (memory, stat) = (number(dir, "memory.current"), Stat::read(dir, "memory.stat"));
    Usage {
        cpu: Stat::read(dir, "cpu.stat").get("usage_usec").map(|us| us * 1000),
        memory,
        working_set: working_set(memory, stat.get("inactive_file")),
        rss: stat.get("anon"),
        memory_limit: number(dir, "memory.max"),
        page_faults: stat.get("pgfault"),
        major_page_faults: stat.get("pgmajfault"),
        swap: number(dir, "memory.swap.current"),
        processes: number(dir, "pids.current"),
    }
}

fn working_set(memory: Option<u64>, inactive_file: Option<u64>) -> Option<u64> {
    Some(memory?.saturating_sub(inactive_file.unwrap_or(0)))
}

fn number(dir: &Path, file: &str) -> Option<u64> {
    crate::node_file::read_text(dir.join(file)).ok()?.trim().parse().ok()
}

/// A file of names and numbers.
struct Stat(String);

impl Stat {
    fn read(dir: &Path, file: &str) -> Self {
        Self(crate::node_file::read_text(dir.join(file)).unwrap_or_default())
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

    const EXPECTED: Usage = Usage {
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
    fn both_versions_tell_the_same() {
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
    fn the_kernel_counts_whom_it_kills() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        write(
            dir.path(),
            &[
                ("p/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
                ("p/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n"),
                // Kernels before 4.13 do not count.
                ("q/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n"),
            ],
        );
        let v1 = Hierarchy::V1 { cpu: root.clone(), memory: root.clone(), pids: None, all: Vec::new() };
        assert_eq!(["/p", "/q", "/r"].map(|path| v1.oom_kills(path)), [Some(2), None, None]);
        assert_eq!(["/p", "/r"].map(|path| Hierarchy::V2(root.clone()).oom_kills(path)), [Some(3), None]);
    }

    #[test]
    fn what_has_no_limit_tells_none_and_what_is_gone_tells_nothing() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[("p/memory.limit_in_bytes", "9223372036854771712\n"), ("q/memory.max", "max\n")]);
        let root = dir.path().to_owned();
        let v1 = Hierarchy::V1 { cpu: root.clone(), memory: root.clone(), pids: None, all: Vec::new() };
        assert_eq!(v1.usage("p"), Some(Usage::default()));
        assert_eq!(Hierarchy::V2(root).usage("q"), Some(Usage::default()));
        assert_eq!(v1.usage("nothing"), None);
    }
}
