//! Mounts of a container.

use crate::{
    ContainerContext, Error, HostInfo, ImageConfig, MountSource, SourcePropagation, namespaces,
    path::{absolute, clean},
};
use oci_spec::runtime::{LinuxIdMapping, Mount};
use runtime::{ContainerConfig, NamespaceMode, Propagation};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Mounts, and the propagation of the root file system that they need.
pub(crate) struct ContainerMounts {
    pub(crate) mounts: Vec<Mount>,
    pub(crate) propagation: Option<&'static str>,
}

/// A bind mount of a path on the node.
struct BindMount<'a> {
    source: &'a Path,
    /// Path in the container.
    target: String,
    propagation: Propagation,
    /// `rw`, `ro` or `rro`.
    access: &'static str,
    /// Whether the OCI runtime maps the owners of files into a user namespace. Otherwise they belong to its IDs already.
    is_id_mapped: bool,
}

impl<'a> BindMount<'a> {
    fn private(source: &'a Path, target: &str, access: &'static str) -> Self {
        let (target, propagation) = (target.to_owned(), Propagation::Private);
        Self { source, target, propagation, access, is_id_mapped: true }
    }

    fn to_oci(&self, mapping: Option<LinuxIdMapping>) -> Mount {
        let propagation = match self.propagation {
            Propagation::Private => "rprivate",
            Propagation::HostToContainer => "rslave",
            Propagation::Bidirectional => "rshared",
        };
        let mut options = vec!["rbind", propagation, self.access];
        let mut mount = Mount::default();
        if let Some(mapping) = mapping.filter(|_| self.is_id_mapped) {
            options.push("idmap");
            mount.set_uid_mappings(Some(vec![mapping])).set_gid_mappings(Some(vec![mapping]));
        }
        set(&mut mount, &self.target, "bind", self.source, &options);
        mount
    }
}

/// Returns the mounts of a container: file systems of the kernel, then bind mounts with parents before what is below
/// them.
///
/// A bind mount replaces a default mount at the same path, and one of `/dev` also those below it. What an OCI runtime
/// refuses to cover, such as `/proc`, is its decision, as with containerd.
pub(crate) fn container_mounts(context: &ContainerContext<'_>, host: &HostInfo) -> Result<ContainerMounts, Error> {
    let mapping = namespaces::id_mapping(context)?;
    let shm = shm(context);
    let mut binds = configured_mounts(context)?;
    let configured = targets(context.config);
    let pod =
        pod_mounts(context, shm.as_deref()).into_iter().filter(|mount| !configured.contains(&clean(&mount.target)));
    binds.extend(pod);
    for volume in image_volumes(context.config, context.image) {
        if volume.contains('\0') {
            return Err(Error::Nul("volume path"));
        }
        let source = context.volumes.get(&volume).ok_or_else(|| Error::NoMountSource(volume.clone()))?;
        // A part of the writable layer, whose files have the owners in the user namespace.
        binds.push(BindMount { is_id_mapped: false, ..BindMount::private(source, &volume, "rw") });
    }
    binds.sort_by_key(|bind| clean(&bind.target).matches('/').count());
    let covered: BTreeSet<String> = binds.iter().map(|bind| clean(&bind.target)).collect();
    let is_covered = |mount: &Mount| {
        let target = mount.destination().to_string_lossy();
        covered.contains(target.as_ref()) || (covered.contains("/dev") && target.starts_with("/dev/"))
    };
    let mut mounts = default_mounts(context, host);
    mounts.retain(|mount| !is_covered(mount));
    mounts.extend(binds.iter().map(|bind| bind.to_oci(mapping)));
    let has = |propagation| binds.iter().any(|bind| bind.propagation == propagation);
    // Runtimes make the root private by default.
    let propagations = [(Propagation::Bidirectional, "rshared"), (Propagation::HostToContainer, "rslave")];
    let propagation = propagations.into_iter().find(|(propagation, _)| has(*propagation)).map(|(_, name)| name);
    Ok(ContainerMounts { mounts, propagation })
}

/// Returns the paths of the image's volumes in the container, except those that the container mounts itself.
///
/// Each gets a directory of its own, which goes with the container (containerd's `volumeMounts`).
#[must_use]
pub fn image_volumes(config: &ContainerConfig, image: &ImageConfig) -> Vec<String> {
    // An image may name a directory twice: `data` and `/data/`.
    let mut used = targets(config);
    image.volumes.iter().filter(|volume| used.insert(clean(volume))).map(|volume| absolute(volume)).collect()
}

fn targets(config: &ContainerConfig) -> BTreeSet<String> {
    config.mounts.iter().map(|mount| clean(&mount.container_path)).collect()
}

fn configured_mounts<'a>(context: &ContainerContext<'a>) -> Result<Vec<BindMount<'a>>, Error> {
    let mut binds = Vec::new();
    for (index, mount) in context.config.mounts.iter().enumerate() {
        if mount.container_path.contains('\0') {
            return Err(Error::Nul("mount path"));
        }
        let no_source = || Error::NoMountSource(mount.container_path.clone());
        let source = context.mounts.get(index).ok_or_else(no_source)?;
        check_propagation(mount.propagation, source)?;
        binds.push(BindMount {
            source: &source.path,
            target: absolute(&mount.container_path),
            propagation: mount.propagation,
            access: access(mount, source, context.recursive_read_only)?,
            // Overlayfs has no ID-mapped mounts: the caller has mapped the layers of images.
            is_id_mapped: mount.image.is_none(),
        });
    }
    Ok(binds)
}

fn access(mount: &runtime::Mount, source: &MountSource, is_supported: bool) -> Result<&'static str, Error> {
    let path = || source.path.clone();
    let name = match mount.propagation {
        Propagation::Private => None,
        Propagation::HostToContainer => Some("PROPAGATION_HOST_TO_CONTAINER"),
        Propagation::Bidirectional => Some("PROPAGATION_BIDIRECTIONAL"),
    };
    // An image is read-only, whatever the Pod says (KEP-4639).
    match (mount.readonly || mount.image.is_some(), mount.recursive_read_only, name) {
        (false, false, _) => Ok("rw"),
        (true, false, _) => Ok("ro"),
        (false, true, _) => Err(Error::RecursiveReadOnlyWritable(path())),
        (true, true, _) if !is_supported => Err(Error::RecursiveReadOnly(path())),
        (true, true, Some(propagation)) => Err(Error::RecursiveReadOnlyPropagation { propagation, path: path() }),
        (true, true, None) => Ok("rro"),
    }
}

fn check_propagation(propagation: Propagation, source: &MountSource) -> Result<(), Error> {
    let (path, mount_point) = (source.path.clone(), source.mount_point.clone());
    match (propagation, source.propagation) {
        (Propagation::Bidirectional, SourcePropagation::Private | SourcePropagation::Slave) => {
            Err(Error::NotShared { path, mount_point })
        }
        (Propagation::HostToContainer, SourcePropagation::Private) => {
            Err(Error::NotSharedOrSlave { path, mount_point })
        }
        _ => Ok(()),
    }
}

/// Returns `/dev/shm` of the node for Pods with its IPC namespace, else the Pod's.
fn shm(context: &ContainerContext<'_>) -> Option<PathBuf> {
    match context.config.security.namespaces.ipc {
        NamespaceMode::Node => Some("/dev/shm".into()),
        _ => context.files.shm.clone(),
    }
}

/// Returns the files of the Pod. They are read-only if the root file system is.
fn pod_mounts<'a>(context: &ContainerContext<'a>, shm: Option<&'a Path>) -> Vec<BindMount<'a>> {
    let access = if context.config.security.readonly_rootfs { "ro" } else { "rw" };
    let files = [
        ("/etc/hostname", &context.files.hostname),
        ("/etc/hosts", &context.files.hosts),
        ("/etc/resolv.conf", &context.files.resolv_conf),
    ];
    let mut binds: Vec<_> = files
        .into_iter()
        .filter_map(|(target, source)| Some(BindMount::private(source.as_deref()?, target, access)))
        .collect();
    // tmpfs has no ID-mapped mounts before Linux 6.3; it is empty, so they are not needed.
    binds.extend(shm.map(|shm| BindMount { is_id_mapped: false, ..BindMount::private(shm, "/dev/shm", "rw") }));
    binds
}

/// Returns the mounts of the kernel's file systems (containerd's `defaultMounts`).
fn default_mounts(context: &ContainerContext<'_>, host: &HostInfo) -> Vec<Mount> {
    let security = &context.config.security;
    let access = if security.privileged { "rw" } else { "ro" };
    let mut cgroup = vec!["nosuid", "noexec", "nodev", "relatime", access];
    if !namespaces::has_cgroup_namespace(context, host) {
        // A mount in the node's cgroup namespace changes the options of the node's mount, so it must repeat them.
        let options = host.cgroup_mount_options.iter().map(String::as_str);
        cgroup.extend(options.filter(|option| ["nsdelegate", "memory_recursiveprot"].contains(option)));
    }
    // sysfs cannot be mounted in a user namespace that does not own the network namespace.
    let is_host_network = context.sandbox.namespaces.network == NamespaceMode::Node;
    let sys: (&str, &str, &[&str]) = if security.namespaces.users.is_some() && is_host_network {
        ("bind", "/sys", &["rbind", "rro", "nosuid", "nodev", "noexec"])
    } else {
        ("sysfs", "sysfs", &["nosuid", "noexec", "nodev", access])
    };
    let mounts: [(&str, &str, &str, &[&str]); 7] = [
        ("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        ("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("/dev/pts", "devpts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        ("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        ("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        ("/sys", sys.0, sys.1, sys.2),
        ("/sys/fs/cgroup", "cgroup", "cgroup", &cgroup),
    ];
    mounts
        .into_iter()
        .map(|(target, kind, source, options)| {
            let mut mount = Mount::default();
            set(&mut mount, target, kind, Path::new(source), options);
            mount
        })
        .collect()
}

fn set(mount: &mut Mount, target: &str, kind: &str, source: &Path, options: &[&str]) {
    mount
        .set_destination(target.into())
        .set_typ(Some(kind.to_owned()))
        .set_source(Some(source.to_path_buf()))
        .set_options(Some(options.iter().map(|option| (*option).to_owned()).collect()));
}

#[cfg(test)]
mod tests;
