//! Resource statistics of the node from `/proc` and its file systems.

mod network;

pub(crate) use network::{NetworkInterface, interfaces};

use lifecycle::eviction::{DiskUsage, Signal, SignalObservation, SignalObservations};
use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Sources of the statistics.
#[derive(Debug, Clone)]
pub(crate) struct SystemStats {
    /// Mount point of procfs.
    proc: PathBuf,
    /// Directory on the file system of volumes and logs.
    node_fs: PathBuf,
}

/// Memory of the node in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// Free memory plus inactive file cache: total minus upstream's working set.
    pub(crate) available: u64,
    /// Used memory, including the file cache.
    pub(crate) used: u64,
    /// Anonymous memory.
    pub(crate) anonymous: u64,
    pub(crate) swap_total: u64,
    pub(crate) swap_free: u64,
}

/// Page faults since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    pub(crate) all: Option<u64>,
    /// Page faults that needed I/O.
    pub(crate) major: Option<u64>,
}

/// Statistics of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileSystem {
    /// Bytes available to unprivileged users.
    pub(crate) available: u64,
    /// Free bytes, including those reserved for root.
    pub(crate) free: u64,
    pub(crate) capacity: u64,
    pub(crate) inodes_free: u64,
    pub(crate) inodes: u64,
}

/// Process IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Processes {
    pub(crate) max: u64,
    pub(crate) running: u64,
}

impl SystemStats {
    pub(crate) fn new(node_fs: &Path) -> Self {
        Self { proc: PathBuf::from("/proc"), node_fs: node_fs.to_owned() }
    }

    fn text(&self, file: &str) -> String {
        crate::host_file::read_text(self.proc.join(file)).unwrap_or_default()
    }

    pub(crate) fn memory(&self) -> Option<Memory> {
        let text = self.text("meminfo");
        let bytes = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        let (total, free) = (bytes("MemTotal")?, bytes("MemFree")?);
        Some(Memory {
            total,
            available: (free + bytes("Inactive(file)").unwrap_or(0)).min(total),
            used: total.saturating_sub(free),
            anonymous: bytes("AnonPages").unwrap_or(0),
            swap_total: bytes("SwapTotal").unwrap_or(0),
            swap_free: bytes("SwapFree").unwrap_or(0),
        })
    }

    pub(crate) fn faults(&self) -> Faults {
        let text = self.text("vmstat");
        let saturating_i64 =
            |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        Faults { all: saturating_i64("pgfault"), major: saturating_i64("pgmajfault") }
    }

    /// Returns the network interfaces of the node.
    pub(crate) fn interfaces(&self) -> Vec<NetworkInterface> {
        interfaces(&self.proc.join("net"))
    }

    /// CPU time that all processes together have used, in nanoseconds.
    pub(crate) fn cpu(&self) -> Option<u64> {
        /// Duration of a tick of `USER_HZ`, the kernel's unit of CPU time.
        const TICK: u64 = 10_000_000;
        let text = self.text("stat");
        let ticks: Vec<u64> =
            text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        // User, nice, system, [idle, iowait,] irq, softirq, steal.
        let used = ticks.iter().take(8).sum::<u64>() - ticks.get(3)? - ticks.get(4).unwrap_or(&0);
        Some(used * TICK)
    }

    pub(crate) fn processes(&self) -> Option<Processes> {
        let saturating_i64 = |file: &str| self.text(file).trim().parse::<u64>().ok();
        let max = [saturating_i64("sys/kernel/pid_max"), saturating_i64("sys/kernel/threads-max")]
            .into_iter()
            .flatten()
            .min()?;
        let running = self.text("loadavg").split(' ').nth(3)?.split_once('/')?.1.parse().ok()?;
        Some(Processes { max, running })
    }

    pub(crate) fn node_fs(&self) -> Option<FileSystem> {
        file_system(&self.node_fs)
    }

    /// Returns the observations of all eviction signals. `image_fs` is the directory of images, `pods` the memory
    /// limit and
    /// usage of the cgroup of all Pods.
    pub(crate) fn signal_observations(&self, image_fs: &Path, pods: Option<(i64, i64)>) -> SignalObservations {
        let mut all = SignalObservations::new();
        let mut add = |signal, available: u64, capacity: u64| {
            all.insert(
                signal,
                SignalObservation { available: saturating_i64(available), capacity: saturating_i64(capacity) },
            );
        };
        if let Some(memory) = self.memory() {
            add(Signal::MemoryAvailable, memory.available, memory.total);
        }
        let of_disk = [
            (self.node_fs(), Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
            (file_system(image_fs), Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        ];
        for (disk, bytes, inodes) in of_disk {
            let Some(disk) = disk else { continue };
            add(bytes, disk.available, disk.capacity);
            // Some file systems have no inode limit.
            if disk.inodes > 0 {
                add(inodes, disk.inodes_free, disk.inodes);
            }
        }
        if let Some(processes) = self.processes() {
            add(Signal::PidAvailable, processes.max.saturating_sub(processes.running), processes.max);
        }
        if let Some((limit, used)) = pods {
            let observation = SignalObservation { available: limit.saturating_sub(used), capacity: limit };
            all.insert(Signal::AllocatableMemoryAvailable, observation);
        }
        all
    }

    /// Whether images are on another file system than the kubelet's directory.
    pub(crate) fn split_disks(&self, image_fs: &Path) -> bool {
        let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
        device(image_fs).is_some_and(|d| Some(d) != device(&self.node_fs))
    }
}

pub(crate) fn saturating_i64(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Returns the statistics of the file system of a directory.
pub(crate) fn file_system(path: &Path) -> Option<FileSystem> {
    let s = nix::sys::statvfs::statvfs(path).ok()?;
    let size = s.fragment_size();
    Some(FileSystem {
        available: s.blocks_available() * size,
        free: s.blocks_free() * size,
        capacity: s.blocks() * size,
        inodes_free: s.files_free(),
        inodes: s.files(),
    })
}

/// Returns the disk usage of a file or a directory tree within its file system. Hard links count once.
pub(crate) fn disk_usage(path: &Path) -> DiskUsage {
    let Ok(top) = fs::symlink_metadata(path) else { return DiskUsage::default() };
    let (mut sum, mut linked, mut dirs) = (DiskUsage::default(), HashSet::new(), Vec::new());
    let mut count = |meta: &fs::Metadata| {
        if meta.is_dir() || meta.nlink() < 2 || linked.insert(meta.ino()) {
            sum = sum.plus(DiskUsage { bytes: saturating_i64(meta.blocks() * 512), inodes: 1 });
        }
    };
    count(&top);
    if top.is_dir() {
        dirs.push(path.to_owned());
    }
    while let Some(dir) = dirs.pop() {
        // Entries that are deleted during the count are skipped.
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.dev() != top.dev() {
                continue;
            }
            count(&meta);
            if meta.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(dir: &Path) -> SystemStats {
        for (file, text) in [
            (
                "meminfo",
                "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\nAnonPages: 100 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n",
            ),
            ("stat", "cpu  10 20 30 1000 1000 1 2 3 99 99\ncpu0 1\n"),
            ("vmstat", "pgfree 9\npgfault 77\npgmajfault 7\n"),
            ("loadavg", "0.00 0.01 0.05 2/150 999\n"),
            ("sys/kernel/pid_max", "4096\n"),
            ("sys/kernel/threads-max", "1150\n"),
        ] {
            let path = dir.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        SystemStats { proc: dir.to_owned(), node_fs: dir.to_owned() }
    }

    #[test]
    fn proc_files_are_parsed() {
        let dir = tempfile::tempdir().unwrap();
        let stats = machine(dir.path());
        let kib = |n: u64| n * 1024;
        let memory = Memory {
            total: kib(1000),
            available: kib(500),
            used: kib(700),
            anonymous: kib(100),
            swap_total: kib(50),
            swap_free: kib(20),
        };
        assert_eq!(stats.memory(), Some(memory));
        assert_eq!(stats.faults(), Faults { all: Some(77), major: Some(7) });
        assert_eq!(stats.cpu(), Some(660_000_000));
        assert_eq!(stats.processes(), Some(Processes { max: 1150, running: 150 }));
        let all = stats.signal_observations(dir.path(), Some((100, 30)));
        assert_eq!(all[&Signal::MemoryAvailable], SignalObservation { available: 500 << 10, capacity: 1000 << 10 });
        assert_eq!(all[&Signal::PidAvailable], SignalObservation { available: 1000, capacity: 1150 });
        assert_eq!(all[&Signal::AllocatableMemoryAvailable], SignalObservation { available: 70, capacity: 100 });
        // Both are the same file system; its free space may change between the calls.
        assert_eq!(all[&Signal::NodeFsAvailable].capacity, all[&Signal::ImageFsAvailable].capacity);
        assert!(!stats.split_disks(dir.path()));
    }

    #[test]
    fn missing_proc_files_give_no_observations() {
        let dir = tempfile::tempdir().unwrap();
        let stats = SystemStats { proc: dir.path().join("nothing"), node_fs: dir.path().join("nothing") };
        assert_eq!(stats.signal_observations(&dir.path().join("nothing"), None), SignalObservations::new());
        assert_eq!((stats.cpu(), stats.memory()), (None, None));
    }

    #[test]
    fn disk_usage_counts_hard_links_once() {
        let dir = tempfile::tempdir().unwrap();
        let empty = disk_usage(dir.path());
        fs::create_dir(dir.path().join("d")).unwrap();
        let with_dir = disk_usage(dir.path());
        fs::write(dir.path().join("d/f"), vec![1; 100_000]).unwrap();
        fs::hard_link(dir.path().join("d/f"), dir.path().join("g")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("h")).unwrap();
        let all = disk_usage(dir.path());
        assert_eq!((with_dir.inodes, all.inodes), (empty.inodes + 1, empty.inodes + 3));
        let grown = all.bytes - with_dir.bytes;
        assert!((100_000..200_000).contains(&grown), "{grown}");
        assert_eq!(disk_usage(&dir.path().join("nothing")), DiskUsage::default());
    }
}
