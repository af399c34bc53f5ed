//! Lists the processes of a container: from /proc the first time, then from the container's cgroup.

use crate::process::{Process, pids_below};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Mount point of the cgroup file systems.
const CGROUPS: &str = "/sys/fs/cgroup";

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
            return pids.into_iter().filter_map(Process::read).collect();
        }
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(cgroups) = fs::read_to_string(entry.path().join("cgroup")) else { continue };
            if !cgroups.contains(&self.container) {
                continue;
            }
            if self.cgroup.is_none() {
                self.cgroup = candidates(&cgroups, &self.container).into_iter().find(|dir| pids_below(dir).is_ok());
            }
            found.extend(entry.file_name().to_str().and_then(|pid| Process::read(pid.parse().ok()?)));
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

#[cfg(test)]
mod tests {
    use super::*;

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
