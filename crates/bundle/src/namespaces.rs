//! Namespaces of a container.

use crate::{ContainerContext, Error, HostInfo};
use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceType};
use runtime::IdMapping;
use std::path::PathBuf;

/// A namespace of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Namespace {
    /// A new one, which only this container has.
    #[default]
    New,
    /// The node's.
    Node,
    /// An existing one, for example `/proc/<pid>/fd/<n>`.
    Path(PathBuf),
}

/// Namespaces that the containers of a Pod join. Mount and cgroup namespaces are always the container's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodNamespaces {
    /// Network.
    pub network: Namespace,
    /// System V IPC and POSIX message queues.
    pub ipc: Namespace,
    /// Host name.
    pub uts: Namespace,
    /// Processes: the Pod's, another container's, the node's, or a new one.
    pub pid: Namespace,
    /// User namespace of a Pod with a mapping of IDs; it has no effect without one.
    pub user: Namespace,
}

/// Returns the namespaces of a container: those of the node are left out.
pub(crate) fn container_namespaces(context: &ContainerContext<'_>, host: &HostInfo) -> Vec<LinuxNamespace> {
    let pod = context.namespaces;
    let security = &context.config.security;
    let mut found = pod_namespaces(pod);
    if has_cgroup_namespace(context, host) {
        found.extend(namespace(LinuxNamespaceType::Cgroup, &Namespace::New));
    }
    if security.namespaces.users.is_some() {
        // A path cannot be the node's: its user namespace cannot have a mapping.
        found.extend(namespace(
            LinuxNamespaceType::User,
            if pod.user == Namespace::Node { &Namespace::New } else { &pod.user },
        ));
    }
    found
}

/// Returns the namespaces that all containers of a Pod have: those of the node are left out.
pub(crate) fn pod_namespaces(pod: &PodNamespaces) -> Vec<LinuxNamespace> {
    let found = [
        namespace(LinuxNamespaceType::Pid, &pod.pid),
        namespace(LinuxNamespaceType::Ipc, &pod.ipc),
        namespace(LinuxNamespaceType::Uts, &pod.uts),
        namespace(LinuxNamespaceType::Mount, &Namespace::New),
        namespace(LinuxNamespaceType::Network, &pod.network),
    ];
    found.into_iter().flatten().collect()
}

/// Returns whether the container has a cgroup namespace of its own: it hides the node's hierarchy. Not with cgroup v1,
/// and not in privileged containers, for compatibility (KEP-2254).
pub(crate) fn has_cgroup_namespace(context: &ContainerContext<'_>, host: &HostInfo) -> bool {
    host.cgroup_v2 && !context.config.security.privileged
}

fn namespace(kind: LinuxNamespaceType, namespace: &Namespace) -> Option<LinuxNamespace> {
    let mut found = LinuxNamespace::default();
    found.set_typ(kind);
    match namespace {
        Namespace::Node => return None,
        Namespace::New => {}
        Namespace::Path(path) => {
            found.set_path(Some(path.clone()));
        }
    }
    Some(found)
}

/// Returns the mapping of user and group IDs of a container with a user namespace.
///
/// # Errors
/// When the Pod has another mapping, or the mapping exceeds the range of IDs.
pub(crate) fn id_mapping(context: &ContainerContext<'_>) -> Result<Option<LinuxIdMapping>, Error> {
    let users = context.config.security.namespaces.users;
    if users != context.sandbox.namespaces.users {
        return Err(Error::UserNamespaceMismatch);
    }
    let Some(IdMapping { host_id, length }) = users else { return Ok(None) };
    if length == 0 || host_id.checked_add(length).is_none() {
        return Err(Error::UserNamespaceMapping { host_id, length });
    }
    let mapping = LinuxIdMappingBuilder::default().container_id(0_u32).host_id(host_id).size(length).build();
    mapping.map(Some).map_err(|e| Error::Encode(e.to_string()))
}
