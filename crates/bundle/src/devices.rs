//! Devices of a container, and the rules of the cgroup's device controller.

use crate::{ContainerContext, DeviceSource, Error, HostInfo};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};
use runtime::Device;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Kind of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// Block device.
    Block,
    /// Character device.
    Char,
    /// FIFO.
    Fifo,
}

/// A device node of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    /// Path on the node.
    pub path: PathBuf,
    /// Kind.
    pub kind: DeviceKind,
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Returns the device nodes of a container in addition to the OCI runtime's default ones (`/dev/null`, `/dev/zero`, …):
/// those of its configuration, and all of the machine if it is privileged.
pub(crate) fn container_devices(context: &ContainerContext<'_>, host: &HostInfo) -> Result<Vec<LinuxDevice>, Error> {
    let mut devices = Vec::new();
    for (device, source) in configured(context)? {
        let nodes = source.nodes.iter();
        devices.extend(nodes.map(|node| linux_device(node, container_path(device, source, node))));
    }
    if context.config.security.privileged {
        // A device of the configuration has precedence over the one at the same path of the machine.
        let used: BTreeSet<PathBuf> = devices.iter().map(|device| device.path().clone()).collect();
        let others = host.devices.iter().filter(|node| node.kind != DeviceKind::Fifo && !used.contains(&node.path));
        devices.extend(others.map(|node| linux_device(node, node.path.clone())));
    }
    Ok(devices)
}

/// Returns the rules of the device controller: nothing but the devices of the configuration, and the default ones,
/// which the OCI runtime adds. Privileged containers have all.
pub(crate) fn cgroup_rules(context: &ContainerContext<'_>) -> Result<Vec<LinuxDeviceCgroup>, Error> {
    let is_privileged = context.config.security.privileged;
    let mut all = LinuxDeviceCgroup::default();
    all.set_allow(is_privileged).set_access(Some("rwm".to_owned()));
    let mut rules = vec![all];
    for (device, source) in configured(context)? {
        if is_privileged {
            break;
        }
        rules.extend(source.nodes.iter().map(|node| {
            let mut rule = LinuxDeviceCgroup::default();
            rule.set_allow(true)
                .set_typ(Some(device_type(node.kind)))
                .set_major(Some(node.major))
                .set_minor(Some(node.minor))
                .set_access(Some(device.permissions.clone()));
            rule
        }));
    }
    Ok(rules)
}

/// Returns the devices of the configuration, each with what it is.
fn configured<'a>(context: &ContainerContext<'a>) -> Result<Vec<(&'a Device, &'a DeviceSource)>, Error> {
    let (config, sources) = (context.config, context.devices);
    let source = |(index, device): (usize, &'a Device)| {
        let source = sources.get(index).ok_or_else(|| Error::NoDevice(device.host_path.clone()))?;
        Ok((device, source))
    };
    config.devices.iter().enumerate().map(source).collect()
}

/// Returns the path of a device in the container: a directory keeps its structure.
fn container_path(device: &Device, source: &DeviceSource, node: &DeviceNode) -> PathBuf {
    if device.container_path.as_os_str().is_empty() {
        return node.path.clone();
    }
    match node.path.strip_prefix(&source.path) {
        Ok(below) if below != Path::new("") => device.container_path.join(below),
        _ => device.container_path.clone(),
    }
}

fn linux_device(node: &DeviceNode, path: PathBuf) -> LinuxDevice {
    let mut device = LinuxDevice::default();
    device
        .set_path(path)
        .set_typ(device_type(node.kind))
        .set_major(node.major)
        .set_minor(node.minor)
        .set_file_mode(Some(node.mode & 0o7777))
        .set_uid(Some(node.uid))
        .set_gid(Some(node.gid));
    device
}

fn device_type(kind: DeviceKind) -> LinuxDeviceType {
    match kind {
        DeviceKind::Block => LinuxDeviceType::B,
        DeviceKind::Char => LinuxDeviceType::C,
        DeviceKind::Fifo => LinuxDeviceType::P,
    }
}
