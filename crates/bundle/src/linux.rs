//! Section `linux` of a specification.

use crate::{
    CapabilitySet, ContainerContext, Error, HostInfo, Namespace, cgroups_path, devices, linux_resources, masked_paths,
    namespaces, seccomp,
};
use oci_spec::runtime::Linux;

/// Returns the Linux section of a container. `propagation` is that of its root file system.
pub(crate) fn container_linux(
    context: &ContainerContext<'_>,
    host: &HostInfo,
    capabilities: CapabilitySet,
    propagation: Option<&'static str>,
) -> Result<Linux, Error> {
    let config = context.config;
    let security = &config.security;
    let mut resources = linux_resources(&config.resources, host)?;
    resources.set_devices(Some(devices::cgroup_rules(context)?));
    let devices = devices::container_devices(context, host)?;
    // That of an existing namespace is not repeated: runc warns that it will refuse both.
    let is_new = !matches!(context.namespaces.user, Namespace::Path(_));
    let mapping = namespaces::id_mapping(context)?.filter(|_| is_new).map(|mapping| vec![mapping]);
    let mut linux = Linux::default();
    linux
        .set_uid_mappings(mapping.clone())
        .set_gid_mappings(mapping)
        .set_resources(Some(resources))
        .set_cgroups_path(Some(cgroups_path(context.sandbox.cgroup_parent.as_deref(), context.id).into()))
        .set_namespaces(Some(namespaces::container_namespaces(context, host)))
        .set_devices(Some(devices).filter(|devices| !devices.is_empty()))
        .set_seccomp(seccomp::container_seccomp(context, host, capabilities)?)
        .set_rootfs_propagation(propagation.map(str::to_owned))
        .set_masked_paths(Some(masked_paths::masked_paths(security, host)))
        .set_readonly_paths(Some(masked_paths::readonly_paths(security)));
    Ok(linux)
}
