//! Lists the processes of a container: from /proc the first time, then from the container's cgroup.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Mount point of the cgroup file systems.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Process of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) session: i32,
    /// Start time: identifies the process, because PIDs are reused.
    pub(super) began: u64,
}

/// Lists the processes of one container, more than once.
#[derive(Debug, Clone)]
pub(super) struct Processes {
    container: String,
    /// cgroup of the container; set once a process was found.
    cgroup: Option<PathBuf>,
}

impl Processes {
    pub(super) fn of(container: &str) -> Self {
        Self { container: container.to_owned(), cgroup: None }
    }

    /// Returns the current processes; none if they do not run on this machine.
    pub(super) async fn list(&mut self) -> Vec<Process> {
        let mut processes = self.clone();
        let listed = tokio::task::spawn_blocking(move || {
            let found = processes.find();
            (found, processes.cgroup)
        });
        let (found, cgroup) = listed.await.unwrap_or_default();
        self.cgroup = cgroup;
        found
    }

    fn find(&mut self) -> Vec<Process> {
        if let Some(cgroup) = &self.cgroup
            && let Ok(pids) = pids_below(cgroup)
        {
            return pids.into_iter().filter_map(|pid| read(&Path::new("/proc").join(pid.to_string()))).collect();
        }
        let mut found = Vec::new();
        for path in fs::read_dir("/proc").into_iter().flatten().flatten().map(|e| e.path()) {
            let Ok(cgroups) = fs::read_to_string(path.join("cgroup")) else { continue };
            if !cgroups.contains(&self.container) {
                continue;
            }
            if self.cgroup.is_none() {
                self.cgroup = candidates(&cgroups, &self.container).into_iter().find(|dir| pids_below(dir).is_ok());
            }
            found.extend(read(&path));
        }
        found
    }
}

/// Returns possible paths of the container's cgroup, from /proc/PID/cgroup of one of its processes (cgroups(7)). A process
/// may be in a child cgroup.
fn candidates(cgroups: &str, container: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in cgroups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let Some(container_path) =
            path.find(container).map(|at| path[at..].find('/').map_or(path, |end| &path[..at + end]))
        else {
            continue;
        };
        let container_path = container_path.trim_start_matches('/');
        let roots = match controllers.trim_start_matches("name=") {
            "" => vec![Path::new(CGROUPS).to_owned(), Path::new(CGROUPS).join("unified")],
            named => vec![Path::new(CGROUPS).join(named)],
        };
        all.extend(roots.into_iter().map(|root| root.join(container_path)));
    }
    all
}

fn pids_below(cgroup: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs"))?;
    let mut pids: Vec<i32> = text.lines().filter_map(|pid| pid.parse().ok()).collect();
    for below in fs::read_dir(cgroup)?.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        // A cgroup removed meanwhile has no processes.
        pids.extend(pids_below(&below.path()).unwrap_or_default());
    }
    Ok(pids)
}

fn read(process: &Path) -> Option<Process> {
    parse(&fs::read_to_string(process.join("stat")).ok()?)
}

/// Parses `stat` of proc(5). Zombies are ignored.
fn parse(stat: &str) -> Option<Process> {
    let pid = stat.split_whitespace().next()?.parse().ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse().ok();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    Some(Process { pid, parent: number(1)?, session: number(3)?, began: fields.get(19)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_despite_parentheses_in_the_name() {
        let rest = "5 20 20 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(
            parse(&format!("20 (a) b (c)) S {rest}")),
            Some(Process { pid: 20, parent: 5, session: 20, began: 4242 })
        );
        assert_eq!(parse(&format!("20 (a) Z {rest}")), None);
        assert_eq!(parse("nothing"), None);
    }

    #[test]
    fn container_cgroup_is_found_by_container_id() {
        let check = |cgroups: &str, expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(candidates(cgroups, "c0ffee"), expected, "{cgroups}");
        };
        let v1 = "8:pids:/pods/p/c0ffee\n9:name=systemd:/c0ffee/below/it\n1:cpu:/else\n";
        check(v1, &["/sys/fs/cgroup/pids/pods/p/c0ffee", "/sys/fs/cgroup/systemd/c0ffee"]);
        let v2 = "0::/kubepods.slice/cri-c0ffee.scope/init.scope";
        let at = [
            "/sys/fs/cgroup/kubepods.slice/cri-c0ffee.scope",
            "/sys/fs/cgroup/unified/kubepods.slice/cri-c0ffee.scope",
        ];
        check(v2, &at);
        check("garbage\n0::/", &[]);
    }
}
