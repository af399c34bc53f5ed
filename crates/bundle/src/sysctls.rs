//! Sysctls of a Pod.

use crate::Error;
use runtime::{NamespaceMode, SandboxConfig};
use std::collections::BTreeMap;

/// Sysctls of the IPC namespace, in addition to those of `fs.mqueue` (runc's validator).
const IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shm_rmid_forced",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
];

/// Returns the sysctls that the creator of a Pod's namespaces must set inside of them, with dots between their parts.
///
/// All sysctls of Pods belong to the namespaces that its containers share, so no container's specification has any.
/// Without the node's network, processes may listen on ports below 1024 and send pings without capabilities, as with
/// containerd 2 (`enable_unprivileged_ports`, `enable_unprivileged_icmp`).
///
/// # Errors
/// When a sysctl is not of a namespace, or is of one that the Pod shares with the node.
pub fn sandbox_sysctls(sandbox: &SandboxConfig) -> Result<BTreeMap<String, String>, Error> {
    let mut sysctls = BTreeMap::new();
    if sandbox.namespaces.network != NamespaceMode::Node {
        sysctls.insert("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned());
        // The range exceeds that of a user namespace.
        if sandbox.namespaces.users.is_none() {
            sysctls.insert("net.ipv4.ping_group_range".to_owned(), "0 2147483647".to_owned());
        }
    }
    for (name, value) in &sandbox.sysctls {
        let dotted = normalize(name).ok_or_else(|| Error::Sysctl(name.clone()))?;
        let (namespace, mode) = match dotted.as_str() {
            "kernel.hostname" => return Err(Error::HostnameSysctl(name.clone())),
            // The host name's namespace is shared if the network is.
            "kernel.domainname" => ("uts", sandbox.namespaces.network),
            ipc if IPC.contains(&ipc) || ipc.starts_with("fs.mqueue.") => ("ipc", sandbox.namespaces.ipc),
            net if net.starts_with("net.") => ("network", sandbox.namespaces.network),
            _ => return Err(Error::Sysctl(name.clone())),
        };
        if mode == NamespaceMode::Node {
            return Err(Error::HostSysctl { name: name.clone(), namespace });
        }
        sysctls.insert(dotted, value.clone());
    }
    Ok(sysctls)
}

/// Returns the name with dots between its parts. The separator is the first of `.` and `/` in it; the other one is part
/// of a name, for example of an interface (`sysctl.d(5)`).
fn normalize(name: &str) -> Option<String> {
    let dotted = match name.find(['.', '/']) {
        Some(first) if name[first..].starts_with('/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    };
    // The path below /proc/sys must not leave it.
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    let is_path = dotted.split('.').all(|part| is_part(part) && part.split('/').all(is_part));
    is_path.then_some(dotted)
}

#[cfg(test)]
mod tests;
