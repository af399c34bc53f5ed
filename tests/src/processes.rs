//! The machine's processes, as the kernel shows them. What has ended meanwhile has no words.

use nix::unistd::Pid;
use std::path::PathBuf;

/// A process that was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(pub Pid);

impl Process {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).map(|pid| Self(Pid::from_raw(pid)))
    }

    /// Those in cgroups of a Pod with this UID: its containers' and its sandbox's.
    pub fn of_pod(uid: &str) -> impl Iterator<Item = Self> {
        Self::all().filter(move |process| process.read("cgroup").contains(uid))
    }

    /// Its directory below `/proc`.
    #[must_use]
    pub fn dir(self) -> PathBuf {
        format!("/proc/{}", self.0).into()
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        self.read("comm").trim().to_owned()
    }

    /// Its program and arguments, with blanks between.
    #[must_use]
    pub fn command(self) -> String {
        self.read("cmdline").replace('\0', " ")
    }

    /// Its parent.
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
