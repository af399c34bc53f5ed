//! What the machine has left, as it says itself.

mod network;

pub(crate) use network::{Link, links};

use lifecycle::eviction::{DiskUsage, Figure, NodeFigures, Signal};
use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Where the figures are read.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// The kernel's own file system.
    proc: PathBuf,
    /// A directory on the file system that holds volumes and logs.
    node_fs: PathBuf,
}

/// The memory of the machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// What nobody uses, or only a file cache that nobody uses: what upstream's working set leaves.
    pub(crate) available: u64,
    /// What is used, file cache included.
    pub(crate) used: u64,
    /// What belongs to no file.
    pub(crate) anonymous: u64,
    pub(crate) swap_total: u64,
    pub(crate) swap_free: u64,
}

/// How often memory was not there that was asked for, since the machine was booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    pub(crate) all: Option<u64>,
    /// Those for which a disk was read.
    pub(crate) major: Option<u64>,
}

/// A file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileSystem {
    /// What may still be written.
    pub(crate) available: u64,
    /// The same with what is kept for root.
    pub(crate) free: u64,
    pub(crate) capacity: u64,
    pub(crate) inodes_free: u64,
    pub(crate) inodes: u64,
}

/// Process ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Processes {
    pub(crate) max: u64,
    pub(crate) running: u64,
}

impl Figures {
    pub(crate) fn of_this_machine(node_fs: &Path) -> Self {
        Self { proc: PathBuf::from("/proc"), node_fs: node_fs.to_owned() }
    }

    fn text(&self, file: &str) -> String {
        crate::node_file::read_text(self.proc.join(file)).unwrap_or_default()
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
        let number = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        Faults { all: number("pgfault"), major: number("pgmajfault") }
    }

    /// What went over the machine's links.
    pub(crate) fn links(&self) -> Vec<Link> {
        links(&self.proc.join("net"))
    }

    /// CPU time that all processes together have used, in nanoseconds.
    pub(crate) fn cpu(&self) -> Option<u64> {
        /// What the kernel counts in, whatever it runs at (`USER_HZ`).
        const TICK: u64 = 10_000_000;
        let text = self.text("stat");
        let ticks: Vec<u64> =
            text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        // User, nice, system, [idle, iowait,] irq, softirq, steal.
        let used = ticks.iter().take(8).sum::<u64>() - ticks.get(3)? - ticks.get(4).unwrap_or(&0);
        Some(used * TICK)
    }

    pub(crate) fn processes(&self) -> Option<Processes> {
        let number = |file: &str| self.text(file).trim().parse::<u64>().ok();
        let max = [number("sys/kernel/pid_max"), number("sys/kernel/threads-max")].into_iter().flatten().min()?;
        let running = self.text("loadavg").split(' ').nth(3)?.split_once('/')?.1.parse().ok()?;
        Some(Processes { max, running })
    }

    pub(crate) fn node_fs(&self) -> Option<FileSystem> {
        file_system(&self.node_fs)
    }

    /// What is left of all that thresholds can be set for. `image_fs` is where images are, and `pods` the limit of all
    /// Pods together and what they use of it.
    pub(crate) fn of_node(&self, image_fs: &Path, pods: Option<(i64, i64)>) -> NodeFigures {
        let mut all = NodeFigures::new();
        let mut add = |signal, available: u64, capacity: u64| {
            all.insert(signal, Figure { available: number(available), capacity: number(capacity) });
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
            // Some file systems have as many as they like.
            if disk.inodes > 0 {
                add(inodes, disk.inodes_free, disk.inodes);
            }
        }
        if let Some(processes) = self.processes() {
            add(Signal::PidAvailable, processes.max.saturating_sub(processes.running), processes.max);
        }
        if let Some((limit, used)) = pods {
            let figure = Figure { available: limit.saturating_sub(used), capacity: limit };
            all.insert(Signal::AllocatableMemoryAvailable, figure);
        }
        all
    }

    /// Whether images have a file system of their own.
    pub(crate) fn split_disks(&self, image_fs: &Path) -> bool {
        let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
        device(image_fs).is_some_and(|d| Some(d) != device(&self.node_fs))
    }
}

pub(crate) fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The file system that a directory is on.
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

/// What a file or a directory with all that is in it takes of the disk that it is on. A file of several names counts once.
pub(crate) fn disk_usage(path: &Path) -> DiskUsage {
    let Ok(top) = fs::symlink_metadata(path) else { return DiskUsage::default() };
    let (mut sum, mut linked, mut dirs) = (DiskUsage::default(), HashSet::new(), Vec::new());
    let mut count = |meta: &fs::Metadata| {
        if meta.is_dir() || meta.nlink() < 2 || linked.insert(meta.ino()) {
            sum = sum.plus(DiskUsage { bytes: number(meta.blocks() * 512), inodes: 1 });
        }
    };
    count(&top);
    if top.is_dir() {
        dirs.push(path.to_owned());
    }
    while let Some(dir) = dirs.pop() {
        // What goes while it is counted is not there any more.
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

    fn machine(dir: &Path) -> Figures {
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
        Figures { proc: dir.to_owned(), node_fs: dir.to_owned() }
    }

    #[test]
    fn the_kernels_figures_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let figures = machine(dir.path());
        let kib = |n: u64| n * 1024;
        let memory = Memory {
            total: kib(1000),
            available: kib(500),
            used: kib(700),
            anonymous: kib(100),
            swap_total: kib(50),
            swap_free: kib(20),
        };
        assert_eq!(figures.memory(), Some(memory));
        assert_eq!(figures.faults(), Faults { all: Some(77), major: Some(7) });
        assert_eq!(figures.cpu(), Some(660_000_000));
        assert_eq!(figures.processes(), Some(Processes { max: 1150, running: 150 }));
        let all = figures.of_node(dir.path(), Some((100, 30)));
        assert_eq!(all[&Signal::MemoryAvailable], Figure { available: 500 << 10, capacity: 1000 << 10 });
        assert_eq!(all[&Signal::PidAvailable], Figure { available: 1000, capacity: 1150 });
        assert_eq!(all[&Signal::AllocatableMemoryAvailable], Figure { available: 70, capacity: 100 });
        // One file system, asked twice: what is free of it changes with whoever else writes to it.
        assert_eq!(all[&Signal::NodeFsAvailable].capacity, all[&Signal::ImageFsAvailable].capacity);
        assert!(!figures.split_disks(dir.path()));
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let figures = Figures { proc: dir.path().join("nothing"), node_fs: dir.path().join("nothing") };
        assert_eq!(figures.of_node(&dir.path().join("nothing"), None), NodeFigures::new());
        assert_eq!((figures.cpu(), figures.memory()), (None, None));
    }

    #[test]
    fn a_file_of_two_names_takes_its_place_once() {
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
