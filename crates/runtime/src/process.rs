//! Processes of a container, as `/proc` and the container's cgroup show them.

use std::{collections::BTreeSet, fs, io, path::Path};

/// Process of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process ID on this machine.
    pub pid: i32,
    /// Process ID of the parent.
    pub parent: i32,
    /// Session ID: the process ID of its leader, which may have exited.
    pub session: i32,
    /// Start time in clock ticks after boot: identifies the process, because process IDs are reused.
    pub began: u64,
}

impl Process {
    /// Reads a process; `None` if it has exited, zombies included.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses `stat` of proc(5). Zombies are ignored.
    fn parse(stat: &str) -> Option<Self> {
        let pid = stat.split_whitespace().next()?.parse().ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |n: usize| fields.get(n)?.parse().ok();
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        Some(Self { pid, parent: number(1)?, session: number(3)?, began: fields.get(19)?.parse().ok()? })
    }
}

/// Extends process IDs with those of all processes in their sessions and of all their descendants.
pub fn add_descendants(found: &mut BTreeSet<i32>, processes: &[Process]) {
    // The processes are not ordered by start time.
    loop {
        let count = found.len();
        for process in processes {
            if found.contains(&process.session) || found.contains(&process.parent) {
                found.insert(process.pid);
            }
        }
        if found.len() == count {
            return;
        }
    }
}

/// Returns the process IDs of a cgroup and of those below it.
///
/// # Errors
/// When the cgroup does not exist.
pub fn pids_below(cgroup: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs"))?;
    // A process of another namespace has the process ID 0.
    let mut pids: Vec<i32> = text.lines().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid > 0).collect();
    for below in fs::read_dir(cgroup)?.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        // A cgroup removed meanwhile has no processes.
        pids.extend(pids_below(&below.path()).unwrap_or_default());
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_despite_parentheses_in_the_name() {
        let rest = "5 20 20 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(
            Process::parse(&format!("20 (a) b (c)) S {rest}")),
            Some(Process { pid: 20, parent: 5, session: 20, began: 4242 })
        );
        assert_eq!(Process::parse(&format!("20 (a) Z {rest}")), None);
        assert_eq!(Process::parse("nothing"), None);
    }

    #[test]
    fn descendants_are_found_by_parent_and_by_session() {
        let process = |pid, parent, session| Process { pid, parent, session, began: 7 };
        // A child in another session, its child before it, an orphan of the first session, and unrelated processes.
        let all =
            [process(23, 22, 22), process(22, 20, 22), process(24, 1, 20), process(10, 1, 10), process(11, 10, 10)];
        let mut found = BTreeSet::from([20]);
        add_descendants(&mut found, &all);
        assert_eq!(found, BTreeSet::from([20, 22, 23, 24]));
    }
}
