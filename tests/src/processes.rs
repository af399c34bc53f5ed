//! Processes of the machine, read from `/proc`. The fields of an ended process are empty.

use nix::unistd::Pid;
use std::path::PathBuf;

/// A process that existed when it was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(pub Pid);

impl Process {
    /// Lists all processes.
    pub fn all() -> impl Iterator<Item = Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).map(|pid| Self(Pid::from_raw(pid)))
    }

    /// Lists the processes in the cgroups of a Pod: those of its containers and its sandbox.
    pub fn of_pod(uid: &str) -> impl Iterator<Item = Self> {
        Self::all().filter(move |process| process.read("cgroup").contains(uid))
    }

    /// Finds the process that holds the sandbox of a Pod: the keeper of the engine, or the pause process of a CRI runtime.
    #[must_use]
    pub fn of_sandbox(uid: &str) -> Option<Self> {
        let is_keeper = |process: &Self| {
            let command = process.command();
            let dir = command.strip_prefix("podium-keeper ").map(|dir| PathBuf::from(dir.trim()));
            let record = dir.and_then(|dir| std::fs::read_to_string(dir.join("sandbox.json")).ok());
            record.is_some_and(|record| record.contains(uid))
        };
        let mut pause = Self::of_pod(uid).filter(|process| process.name() == "pause");
        pause.next().or_else(|| Self::all().find(is_keeper))
    }

    /// Returns the process's directory in `/proc`.
    #[must_use]
    pub fn dir(self) -> PathBuf {
        format!("/proc/{}", self.0).into()
    }

    /// Returns the process's name.
    #[must_use]
    pub fn name(self) -> String {
        self.read("comm").trim().to_owned()
    }

    /// Returns the program and its arguments, separated by spaces.
    #[must_use]
    pub fn command(self) -> String {
        self.read("cmdline").replace('\0', " ")
    }

    /// Returns the parent process.
    #[must_use]
    pub fn parent(self) -> Option<Self> {
        let status = self.read("status");
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok().map(|pid| Self(Pid::from_raw(pid)))
    }

    fn read(self, file: &str) -> String {
        std::fs::read_to_string(self.dir().join(file)).unwrap_or_default()
    }
}
