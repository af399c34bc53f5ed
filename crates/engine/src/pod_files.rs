//! Files of a Pod that all its containers mount: `resolv.conf`, `hostname` and `/dev/shm`.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use runtime::{Dns, NamespaceMode, SandboxConfig};
use std::{
    fmt::Write,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Size of `/dev/shm` in bytes, containerd's default.
const SHM_SIZE: u32 = 64 << 20;
/// Configuration of the node's resolver, for Pods without a DNS configuration.
const NODE_RESOLV_CONF: &str = "/etc/resolv.conf";
/// Maximum size of the node's file in bytes; upstream's kubelet reads 10 MiB.
const MAX_RESOLV_CONF: u64 = 10 << 20;

/// Paths of a Pod's files in the directory of its sandbox.
#[derive(Debug, Clone)]
pub(crate) struct PodFiles {
    pub(crate) resolv_conf: PathBuf,
    pub(crate) hostname: PathBuf,
    /// `/dev/shm` of the Pod; that of the node with the node's IPC namespace.
    pub(crate) shm: PathBuf,
}

impl PodFiles {
    pub(crate) fn new(sandbox_dir: &Path, ipc: NamespaceMode) -> Self {
        Self {
            resolv_conf: sandbox_dir.join("resolv.conf"),
            hostname: sandbox_dir.join("hostname"),
            shm: if ipc == NamespaceMode::Node { "/dev/shm".into() } else { sandbox_dir.join("shm") },
        }
    }

    /// Writes the files, readable for all users of the containers, and mounts `/dev/shm`.
    ///
    /// # Errors
    /// When the file system or the mount fails.
    pub(crate) fn create(&self, config: &SandboxConfig, node_name: &str) -> io::Result<()> {
        let hostname = if config.hostname.is_empty() { node_name } else { &config.hostname };
        write_public(&self.hostname, format!("{hostname}\n").as_bytes())?;
        let resolv_conf = match &config.dns {
            Some(dns) => resolv_conf(dns).into_bytes(),
            None => match files::read_bounded(Path::new(NODE_RESOLV_CONF), MAX_RESOLV_CONF) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                content => content?,
            },
        };
        write_public(&self.resolv_conf, &resolv_conf)?;
        if config.namespaces.ipc == NamespaceMode::Node {
            return Ok(());
        }
        files::create_private_dir_all(&self.shm)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let owner = config.namespaces.users.map_or(0, |users| users.host_id);
        let options = format!("mode=1777,size={SHM_SIZE},uid={owner},gid={owner}");
        mount(Some("shm"), &self.shm, Some("tmpfs"), flags, Some(options.as_str())).map_err(io::Error::from)
    }

    /// Unmounts `/dev/shm` of the Pod. Succeeds if it is not mounted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn unmount(&self, ipc: NamespaceMode) -> io::Result<()> {
        if ipc == NamespaceMode::Node { Ok(()) } else { unmount(&self.shm) }
    }
}

/// Unmounts a mount point lazily: a process of the container may still hold a file. Succeeds if nothing is mounted.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn unmount(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn write_public(path: &Path, content: &[u8]) -> io::Result<()> {
    files::replace_private_unsynced(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// Formats a DNS configuration as containerd does (`parseDNSOptions`).
fn resolv_conf(dns: &Dns) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        let _ = writeln!(text, "search {}", dns.searches.join(" "));
    }
    for server in &dns.servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !dns.options.is_empty() {
        let _ = writeln!(text, "options {}", dns.options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_has_searches_servers_and_options() {
        let lines = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        let dns = Dns {
            servers: lines(&["10.96.0.10", "1.1.1.1"]),
            searches: lines(&["default.svc.cluster.local", "svc.cluster.local"]),
            options: lines(&["ndots:5"]),
        };
        let expected = "search default.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\nnameserver 1.1.1.1\n\
                        options ndots:5\n";
        assert_eq!(resolv_conf(&dns), expected);
        assert_eq!(resolv_conf(&Dns::default()), "");
    }
}
