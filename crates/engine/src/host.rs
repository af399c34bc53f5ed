//! Facts about the machine that the OCI configuration depends on.

use bundle::{Architecture, CapabilitySet, DeviceKind, DeviceNode, HostInfo};
use nix::sys::stat::{major, minor};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Maximum number of device nodes: a machine with many disks has thousands.
const MAX_DEVICES: usize = 20_000;
/// Directories and nodes of `/dev` that belong to the machine's own terminals and mounts (containerd's `getDevices`).
const SKIPPED_DEVICES: [&str; 7] = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"];
const CGROUP: &str = "/sys/fs/cgroup";

/// Reads the facts. What cannot be read is taken as missing.
pub(crate) fn host_info(node_name: &str) -> HostInfo {
    let cgroup_v2 = Path::new(CGROUP).join("cgroup.controllers").exists();
    HostInfo {
        hostname: node_name.to_owned(),
        architecture: Architecture::default(),
        kernel: kernel_version(),
        capabilities: effective_capabilities(),
        oom_score_adj: read("/proc/self/oom_score_adj").trim().parse().unwrap_or(0),
        seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
        cgroup_v2,
        cgroup_mount_options: cgroup_mount_options(),
        swap_limit: has_swap_limit(cgroup_v2),
        hugetlb: has_hugetlb(cgroup_v2),
        devices: devices(),
        masked_paths: thermal_throttle_paths(),
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn kernel_version() -> (u32, u32) {
    parse_kernel_version(&read("/proc/sys/kernel/osrelease"))
}

fn parse_kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn effective_capabilities() -> CapabilitySet {
    let status = read("/proc/self/status");
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    CapabilitySet::from_bits(bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0))
}

/// Returns the options of the mount of `/sys/fs/cgroup` itself (field 6 of mountinfo).
fn cgroup_mount_options() -> Vec<String> {
    let table = read("/proc/self/mountinfo");
    let options = table.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(4);
        (fields.next()? == CGROUP).then(|| fields.next().unwrap_or_default().to_owned())
    });
    options.unwrap_or_default().split(',').filter(|option| !option.is_empty()).map(str::to_owned).collect()
}

fn has_swap_limit(cgroup_v2: bool) -> bool {
    if cgroup_v2 {
        // The root cgroup has no limits; `memory.swap.max` of the own one shows the kernel's configuration.
        let own = read("/proc/self/cgroup");
        let path =
            own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_start_matches('/').to_owned();
        return Path::new(CGROUP).join(path).join("memory.swap.max").exists();
    }
    Path::new(CGROUP).join("memory/memory.memsw.limit_in_bytes").exists()
}

fn has_hugetlb(cgroup_v2: bool) -> bool {
    if cgroup_v2 {
        return read(Path::new(CGROUP).join("cgroup.controllers")).split_whitespace().any(|name| name == "hugetlb");
    }
    Path::new(CGROUP).join("hugetlb").is_dir()
}

fn thermal_throttle_paths() -> Vec<String> {
    let cpus = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let paths = cpus.map(|cpu| cpu.path().join("thermal_throttle")).filter(|path| path.is_dir());
    let mut paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    paths.sort();
    paths
}

fn devices() -> Vec<DeviceNode> {
    let mut found = Vec::new();
    collect_devices(Path::new("/dev"), 0, &mut found);
    found
}

/// Returns the device node at a path, or all below a directory.
pub(crate) fn devices_at(path: &Path) -> Vec<DeviceNode> {
    let mut found = Vec::new();
    match device(path) {
        Some(node) => found.push(node),
        None => collect_devices(path, 0, &mut found),
    }
    found
}

fn collect_devices(dir: &Path, depth: u32, found: &mut Vec<DeviceNode>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if found.len() >= MAX_DEVICES || SKIPPED_DEVICES.iter().any(|skipped| name == *skipped) {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < 8 => collect_devices(&path, depth + 1, found),
            Ok(_) if path == Path::new("/dev/console") => {}
            Ok(_) => found.extend(device(&path)),
            Err(_) => {}
        }
    }
}

fn device(path: &Path) -> Option<DeviceNode> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let file_type = metadata.file_type();
    let kind = match () {
        () if file_type.is_block_device() => DeviceKind::Block,
        () if file_type.is_char_device() => DeviceKind::Char,
        () => return None,
    };
    let number = |n: u64| i64::try_from(n).ok();
    Some(DeviceNode {
        path: PathBuf::from(path),
        kind,
        major: number(major(metadata.rdev()))?,
        minor: number(minor(metadata.rdev()))?,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_version_is_parsed() {
        for (text, expected) in
            [("6.1.0-18-amd64\n", (6, 1)), ("5.15.167.4-microsoft", (5, 15)), ("7", (7, 0)), ("", (0, 0))]
        {
            assert_eq!(parse_kernel_version(text), expected, "{text}");
        }
    }

    #[test]
    fn null_device_is_found_with_its_numbers() {
        let null = devices_at(Path::new("/dev/null"));
        assert_eq!(
            null.iter().map(|node| (node.kind, node.major, node.minor)).collect::<Vec<_>>(),
            [(DeviceKind::Char, 1, 3)]
        );
        assert!(devices().iter().any(|node| node.path == Path::new("/dev/null")));
        assert!(devices_at(Path::new("/nowhere")).is_empty());
    }
}
