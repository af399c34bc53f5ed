//! cgroup of a measured Podium with its external runtime and all processes that they start, containers included: their CPU
//! time and memory.

use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const ROOT: &str = "/sys/fs/cgroup";
/// cgroup of Podium itself, below the group: on v2, a cgroup with processes has no children.
const MAIN: &str = "main";
/// cgroup of the Pods below `cgroupRoot`, as the kubelet names it.
const PODS: &str = "kubepods";

/// A cgroup of its own. Removed on drop, as far as it is empty.
pub(crate) struct MachineGroup {
    name: String,
    is_v2: bool,
}

impl MachineGroup {
    /// Creates a cgroup.
    pub(crate) fn create() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("podium-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let group = Self { name, is_v2: Path::new(ROOT).join("cgroup.controllers").exists() };
        let main = group.dir().join(MAIN);
        fs::create_dir_all(&main).with_context(|| main.display().to_string())?;
        Ok(group)
    }

    /// Returns the path for `cgroupRoot` of a `KubeletConfiguration`.
    pub(crate) fn root(&self) -> String {
        format!("/{}", self.name)
    }

    /// Returns the directory, in the hierarchy that counts CPU time.
    fn dir(&self) -> PathBuf {
        Path::new(ROOT).join(if self.is_v2 { "" } else { "cpuacct" }).join(&self.name)
    }

    /// Returns a command that runs a program in the group from its first instruction on.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(self.dir().join(MAIN).join("cgroup.procs")).arg(program);
        command
    }

    /// Moves a process into the group. The processes that it starts from now on are in the group, too.
    pub(crate) fn add(&self, process: u32) -> Result<()> {
        let file = self.dir().join(MAIN).join("cgroup.procs");
        fs::write(&file, process.to_string()).with_context(|| file.display().to_string())
    }

    /// Returns the CPU time of all processes that are or were in the group.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        if !self.is_v2 {
            let text = fs::read_to_string(self.dir().join("cpuacct.usage"))?;
            return Ok(Duration::from_nanos(text.trim().parse()?));
        }
        let text = fs::read_to_string(self.dir().join("cpu.stat"))?;
        let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec ")).context("no usage_usec")?;
        Ok(Duration::from_micros(usage.parse()?))
    }

    /// Returns the processes of Podium, its runtime and its helpers, without those of Pods.
    pub(crate) fn own_processes(&self) -> Vec<u32> {
        processes(&self.dir().join(MAIN))
    }

    /// Returns the processes of Pods: containers and sandboxes.
    pub(crate) fn pod_processes(&self) -> Vec<u32> {
        processes(&self.dir().join(PODS))
    }

    /// Returns the first process of a container.
    pub(crate) fn container_process(&self, id: &str) -> Result<u32> {
        let dir = find(&self.dir().join(PODS), id).with_context(|| format!("no cgroup of container {id}"))?;
        processes(&dir).into_iter().min().with_context(|| format!("container {id} has no process"))
    }
}

impl Drop for MachineGroup {
    fn drop(&mut self) {
        let hierarchies = fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
        for dir in hierarchies.chain([PathBuf::from(ROOT)]) {
            remove(&dir.join(&self.name));
        }
    }
}

fn below(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn processes(dir: &Path) -> Vec<u32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let own = text.lines().filter_map(|line| line.parse().ok());
    own.chain(below(dir).flat_map(|dir| processes(&dir))).collect()
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    below(dir).find_map(|dir| if dir.file_name()?.to_str()?.contains(name) { Some(dir) } else { find(&dir, name) })
}

fn remove(dir: &Path) {
    below(dir).for_each(|dir| remove(&dir));
    let _ = fs::remove_dir(dir);
}

/// Returns the name of a process, as the kernel truncates it.
pub(crate) fn name(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_owned()
}

/// Returns the proportional set size of processes in bytes: memory that several share is divided between them.
pub(crate) fn proportional_set_size(processes: &[u32]) -> u64 {
    let size = |process: &u32| {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    // Processes that ended meanwhile have none.
    processes.iter().filter_map(size).sum::<u64>() * 1024
}
