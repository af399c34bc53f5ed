//! Namespaces of a Pod.
//!
//! A process without threads can leave its namespaces and return, without unsafe code: the keeper unshares, configures
//! the new namespaces from inside, opens them, and joins its own ones again. The open descriptors keep the new ones.

use crate::{
    config::{KeeperConfig, NamespaceMode, NamespaceModes},
    protocol::NamespaceDescriptors,
    user_namespace,
};
use nix::sched::{CloneFlags, setns, unshare};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

/// Directory of the kernel's parameters.
const SYSCTLS: &str = "/proc/sys";

/// Kind of a namespace that a process can leave and join again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Network,
    Ipc,
    Uts,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Network, Self::Ipc, Self::Uts];

    /// Returns the name in `/proc/PID/ns`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Network => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
        }
    }

    pub(crate) fn flag(self) -> CloneFlags {
        match self {
            Self::Network => CloneFlags::CLONE_NEWNET,
            Self::Ipc => CloneFlags::CLONE_NEWIPC,
            Self::Uts => CloneFlags::CLONE_NEWUTS,
        }
    }

    fn mode(self, modes: &NamespaceModes) -> NamespaceMode {
        match self {
            Self::Network => modes.network,
            Self::Ipc => modes.ipc,
            Self::Uts => modes.uts,
        }
    }
}

/// Descriptors of the Pod's namespaces.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    network: Option<File>,
    ipc: Option<File>,
    uts: Option<File>,
    /// Processes, with the process 1.
    pub(crate) pid: Option<File>,
    /// Users.
    pub(crate) user: Option<File>,
}

impl Namespaces {
    pub(crate) fn descriptors(&self) -> NamespaceDescriptors {
        let number = |file: &Option<File>| file.as_ref().map(AsRawFd::as_raw_fd);
        NamespaceDescriptors {
            network: number(&self.network),
            ipc: number(&self.ipc),
            uts: number(&self.uts),
            pid: number(&self.pid),
            user: number(&self.user),
        }
    }

    pub(crate) fn of_user_namespace(user: File) -> Self {
        Self { user: Some(user), ..Self::default() }
    }

    pub(crate) fn of(&mut self, kind: Kind) -> &mut Option<File> {
        match kind {
            Kind::Network => &mut self.network,
            Kind::Ipc => &mut self.ipc,
            Kind::Uts => &mut self.uts,
        }
    }

    /// Runs a function in the Pod's network, IPC and UTS namespaces.
    pub(crate) fn inside<T>(&self, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let kinds = [(&self.network, Kind::Network), (&self.ipc, Kind::Ipc), (&self.uts, Kind::Uts)];
        let mut own = Vec::new();
        for (file, kind) in kinds {
            if let Some(file) = file {
                own.push((open(kind.name())?, kind.flag()));
                setns(file, kind.flag())?;
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
    let of_pod = Kind::ALL.into_iter().filter(|kind| kind.mode(&config.namespaces) == NamespaceMode::Pod);
    let kinds: Vec<Kind> = of_pod.collect();
    let sysctls = sysctls(config)?;
    let (namespaces, sysctls) = match config.user_mapping {
        Some(mapping) => {
            let (of_ipc, others): (Vec<_>, Vec<_>) = sysctls.into_iter().partition(|sysctl| sysctl.of_ipc);
            (user_namespace::create(mapping, &kinds, &of_ipc)?, others)
        }
        None => (unshared(&kinds)?, sysctls),
    };
    namespaces.inside(|| {
        if let Some(name) = config.hostname.as_deref().filter(|_| kinds.contains(&Kind::Uts)) {
            nix::unistd::sethostname(name)
                .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("host name {name}: {error}")))?;
        }
        set_sysctls(&sysctls)
    })?;
    Ok(namespaces)
}

/// Creates namespaces of the node's user namespace.
fn unshared(kinds: &[Kind]) -> io::Result<Namespaces> {
    let own: Vec<(File, CloneFlags)> =
        kinds.iter().map(|kind| Ok((open(kind.name())?, kind.flag()))).collect::<io::Result<_>>()?;
    unshare(own.iter().fold(CloneFlags::empty(), |flags, (_, flag)| flags | *flag))?;
    let mut namespaces = Namespaces::default();
    for kind in kinds {
        *namespaces.of(*kind) = Some(open(kind.name())?);
    }
    for (file, flag) in own {
        setns(file, flag)?;
    }
    Ok(namespaces)
}

pub(crate) fn set_sysctls(sysctls: &[Sysctl]) -> io::Result<()> {
    for Sysctl { path, value, .. } in sysctls {
        fs::write(path, value)
            .map_err(|error| io::Error::new(error.kind(), format!("failed to set {}: {error}", path.display())))?;
    }
    Ok(())
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

/// A sysctl of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sysctl {
    /// File.
    path: PathBuf,
    value: String,
    /// Whether it belongs to the IPC namespace.
    of_ipc: bool,
}

/// Returns the sysctls of the configuration.
///
/// # Errors
/// If a sysctl does not belong to a namespace of the Pod: it would change the node.
fn sysctls(config: &KeeperConfig) -> io::Result<Vec<Sysctl>> {
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
            (Some(path), Some(NamespaceMode::Pod)) => {
                files.push(Sysctl {
                    path: Path::new(SYSCTLS).join(&path),
                    value: value.clone(),
                    of_ipc: is_ipc(&path),
                });
            }
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
            let path = sysctls(&config).unwrap().remove(0).path;
            assert!(path.starts_with("/proc/sys/net/"), "{}", path.display());
        }
        assert_eq!(sysctl_path("net.ipv4.conf.eth0/1.x").as_deref(), Some("net/ipv4/conf/eth0.1/x"));
        assert!(sysctls(&config("kernel.domainname")).is_ok());
        for name in ["kernel.panic", "kernel.shmmax", "net/../kernel/panic", "net..x", "", "net", "vm.swappiness"] {
            sysctls(&config(name)).unwrap_err();
        }
    }
}
