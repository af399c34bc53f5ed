//! Namespaces of a Pod.
//!
//! A process without threads can leave its namespaces and return, without unsafe code: the keeper unshares, configures
//! the new namespaces from inside, opens them, and joins its own ones again. The open descriptors keep the new ones.

use crate::{
    config::{KeeperConfig, NamespaceMode},
    protocol::NamespaceDescriptors,
};
use nix::sched::{CloneFlags, setns, unshare};
use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

/// Directory of the kernel's parameters.
const SYSCTLS: &str = "/proc/sys";

/// Descriptors of the Pod's namespaces.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    network: Option<File>,
    ipc: Option<File>,
    uts: Option<File>,
    /// Processes, with the process 1.
    pub(crate) pid: Option<File>,
}

impl Namespaces {
    pub(crate) fn descriptors(&self) -> NamespaceDescriptors {
        let number = |file: &Option<File>| file.as_ref().map(AsRawFd::as_raw_fd);
        NamespaceDescriptors {
            network: number(&self.network),
            ipc: number(&self.ipc),
            uts: number(&self.uts),
            pid: number(&self.pid),
        }
    }
}

impl Namespaces {
    /// Runs a function in the Pod's network, IPC and UTS namespaces.
    pub(crate) fn inside<T>(&self, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let kinds = [
            (&self.network, "net", CloneFlags::CLONE_NEWNET),
            (&self.ipc, "ipc", CloneFlags::CLONE_NEWIPC),
            (&self.uts, "uts", CloneFlags::CLONE_NEWUTS),
        ];
        let mut own = Vec::new();
        for (file, name, flag) in kinds {
            if let Some(file) = file {
                own.push((open(name)?, flag));
                setns(file, flag)?;
            }
        }
        let result = run();
        for (file, flag) in own {
            setns(file, flag)?;
        }
        result
    }
}

/// Creates the namespaces of a Pod, except that of processes, and sets host name and sysctls.
pub(crate) fn create(config: &KeeperConfig) -> io::Result<Namespaces> {
    let modes = &config.namespaces;
    if modes.user == NamespaceMode::Pod {
        return Err(io::Error::new(ErrorKind::Unsupported, "user namespaces are not supported yet"));
    }
    let kinds = [
        (modes.network, "net", CloneFlags::CLONE_NEWNET),
        (modes.ipc, "ipc", CloneFlags::CLONE_NEWIPC),
        (modes.uts, "uts", CloneFlags::CLONE_NEWUTS),
    ];
    let sysctls = sysctl_files(config)?;
    let of_pod = kinds.iter().filter(|(mode, ..)| *mode == NamespaceMode::Pod);
    let own: Vec<(File, CloneFlags)> =
        of_pod.map(|(_, name, flag)| Ok((open(name)?, *flag))).collect::<io::Result<_>>()?;
    unshare(own.iter().fold(CloneFlags::empty(), |flags, (_, flag)| flags | *flag))?;
    if let Some(name) = config.hostname.as_deref().filter(|_| modes.uts == NamespaceMode::Pod) {
        nix::unistd::sethostname(name)
            .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("host name {name}: {error}")))?;
    }
    for (path, value) in sysctls {
        fs::write(&path, value)
            .map_err(|error| io::Error::new(error.kind(), format!("failed to set {}: {error}", path.display())))?;
    }
    let opened = |mode: NamespaceMode, name| (mode == NamespaceMode::Pod).then(|| open(name)).transpose();
    let namespaces = Namespaces {
        network: opened(modes.network, "net")?,
        ipc: opened(modes.ipc, "ipc")?,
        uts: opened(modes.uts, "uts")?,
        pid: None,
    };
    for (file, flag) in own {
        setns(file, flag)?;
    }
    Ok(namespaces)
}

/// Runs a function whose first child process is the process 1 of a new namespace.
pub(crate) fn in_new_pid_namespace<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = open("pid")?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    let result = start();
    setns(own, CloneFlags::CLONE_NEWPID)?;
    result
}

fn open(name: &str) -> io::Result<File> {
    File::open(Path::new("/proc/self/ns").join(name))
}

/// Returns the files of sysctls and their values.
///
/// # Errors
/// If a sysctl does not belong to a namespace of the Pod: it would change the node.
fn sysctl_files(config: &KeeperConfig) -> io::Result<Vec<(PathBuf, &str)>> {
    let modes = &config.namespaces;
    let mut files = Vec::new();
    for (name, value) in &config.sysctls {
        let path = sysctl_path(name);
        let owner = match path.as_deref() {
            Some(path) if path.starts_with("net/") => Some(modes.network),
            Some(path) if is_ipc(path) => Some(modes.ipc),
            Some("kernel/hostname" | "kernel/domainname") => Some(modes.uts),
            _ => None,
        };
        match (path, owner) {
            (Some(path), Some(NamespaceMode::Pod)) => files.push((Path::new(SYSCTLS).join(path), value.as_str())),
            _ => {
                let text = format!("sysctl {name} does not belong to a namespace of the Pod");
                return Err(io::Error::new(ErrorKind::InvalidInput, text));
            }
        }
    }
    Ok(files)
}

fn is_ipc(path: &str) -> bool {
    ["kernel/shm", "kernel/msg", "kernel/sem", "fs/mqueue/"].iter().any(|prefix| path.starts_with(prefix))
}

/// Returns the path of a sysctl, as sysctl(8): with a slash before the first dot, slashes are separators, else dots
/// are, and the other character is part of a name.
fn sysctl_path(name: &str) -> Option<String> {
    let uses_slashes = name.find(['/', '.']).is_some_and(|at| name[at..].starts_with('/'));
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    let path: String = if uses_slashes { name.to_owned() } else { name.chars().map(swap).collect() };
    path.split('/').all(|part| !part.is_empty() && part != "." && part != "..").then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(sysctl: &str) -> KeeperConfig {
        let text = format!(
            r#"{{"version":1,"sandboxId":"s","namespaces":{{"network":"pod","ipc":"node","uts":"pod"}},
            "sysctls":{{"{sysctl}":"1"}},"runtime":{{"program":"r","root":"/"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn only_sysctls_of_the_pod_are_set() {
        for name in ["net.core.somaxconn", "net/ipv4/conf/eth0.1/forwarding", "net.ipv4.conf.eth0/1.forwarding"] {
            let config = config(name);
            let path = sysctl_files(&config).unwrap().remove(0).0;
            assert!(path.starts_with("/proc/sys/net/"), "{}", path.display());
        }
        assert_eq!(sysctl_path("net.ipv4.conf.eth0/1.x").as_deref(), Some("net/ipv4/conf/eth0.1/x"));
        assert!(sysctl_files(&config("kernel.domainname")).is_ok());
        for name in ["kernel.panic", "kernel.shmmax", "net/../kernel/panic", "net..x", "", "net", "vm.swappiness"] {
            sysctl_files(&config(name)).unwrap_err();
        }
    }
}
