//! cgroup limits and the cgroup's path.

use crate::{Error, HostInfo};
use oci_spec::runtime::{LinuxCpu, LinuxHugepageLimit, LinuxMemory, LinuxResources, Spec};

/// Returns the limits of a container, without the rules for devices (containerd's `WithResources`). Processes have no
/// limit of their own: the Pod's cgroup has one.
///
/// # Errors
/// When a limit that must not be negative is.
pub fn linux_resources(limits: &runtime::LinuxResources, host: &HostInfo) -> Result<LinuxResources, Error> {
    let mut resources = LinuxResources::default();
    apply(&mut resources, limits, host)?;
    Ok(resources)
}

/// Sets new limits in a specification, and returns what an OCI runtime's `update --resources` must get: all limits,
/// also the unchanged ones, but no rules for devices.
///
/// # Errors
/// When a limit is invalid. The specification is unchanged then.
pub fn update_resources(
    spec: &mut Spec,
    limits: &runtime::LinuxResources,
    host: &HostInfo,
) -> Result<LinuxResources, Error> {
    let mut linux = spec.linux().clone().unwrap_or_default();
    let mut resources = linux.resources().clone().unwrap_or_default();
    apply(&mut resources, limits, host)?;
    let mut update = resources.clone();
    update.set_devices(None);
    linux.set_resources(Some(resources));
    spec.set_linux(Some(linux));
    Ok(update)
}

/// Sets the limits that are not zero; the others keep their values.
fn apply(resources: &mut LinuxResources, limits: &runtime::LinuxResources, host: &HostInfo) -> Result<(), Error> {
    let mut cpu = resources.cpu().clone().unwrap_or_default();
    if let Some(period) = unsigned("CPU period", limits.cpu_period)? {
        cpu.set_period(Some(period));
    }
    if limits.cpu_quota != 0 {
        cpu.set_quota(Some(limits.cpu_quota));
    }
    if let Some(shares) = unsigned("CPU shares", limits.cpu_shares)? {
        cpu.set_shares(Some(shares));
    }
    if !limits.cpuset_cpus.is_empty() {
        cpu.set_cpus(Some(limits.cpuset_cpus.clone()));
    }
    if !limits.cpuset_mems.is_empty() {
        cpu.set_mems(Some(limits.cpuset_mems.clone()));
    }
    resources.set_cpu(Some(cpu).filter(|cpu| *cpu != LinuxCpu::default()));
    let mut memory: LinuxMemory = resources.memory().unwrap_or_default();
    if limits.memory_limit != 0 {
        memory.set_limit(Some(limits.memory_limit));
        if host.swap_limit {
            // The limit of memory and swap together: the container cannot swap.
            memory.set_swap(Some(limits.memory_limit));
        }
    }
    resources.set_memory(Some(memory).filter(|memory| *memory != LinuxMemory::default()));
    if host.hugetlb && !limits.hugepage_limits.is_empty() {
        let mut all = resources.hugepage_limits().clone().unwrap_or_default();
        all.retain(|limit| !limits.hugepage_limits.contains_key(limit.page_size()));
        all.extend(limits.hugepage_limits.iter().map(|(size, bytes)| hugepage_limit(size, *bytes)));
        resources.set_hugepage_limits(Some(all));
    }
    if !limits.unified.is_empty() {
        let mut unified = resources.unified().clone().unwrap_or_default();
        unified.extend(limits.unified.clone());
        resources.set_unified(Some(unified));
    }
    Ok(())
}

fn hugepage_limit(page_size: &str, bytes: u64) -> LinuxHugepageLimit {
    let mut limit = LinuxHugepageLimit::default();
    limit.set_page_size(page_size.to_owned()).set_limit(i64::try_from(bytes).unwrap_or(i64::MAX));
    limit
}

fn unsigned(name: &'static str, value: i64) -> Result<Option<u64>, Error> {
    let number = u64::try_from(value).map_err(|_| Error::NegativeLimit { name, value })?;
    Ok(Some(number).filter(|number| *number != 0))
}

/// Prefix of the names of containers' scopes.
const SCOPE_PREFIX: &str = "cri-podium";

/// Returns `cgroupsPath` of a container: below the Pod's cgroup, or `SLICE:cri-podium:ID` if that is a slice of
/// systemd. The OCI runtime needs `--systemd-cgroup` then.
#[must_use]
pub fn cgroups_path(parent: Option<&str>, id: &str) -> String {
    match slice(parent) {
        Some(slice) => format!("{slice}:{SCOPE_PREFIX}:{id}"),
        None => format!("{}/{id}", directory(parent)),
    }
}

/// Returns the path of a container's cgroup in the hierarchies. That of a slice must be complete.
#[must_use]
pub fn cgroup_path(parent: Option<&str>, id: &str) -> String {
    match slice(parent) {
        Some(_) => format!("{}/{SCOPE_PREFIX}-{id}.scope", directory(parent)),
        None => format!("{}/{id}", directory(parent)),
    }
}

/// Returns whether the parent of a container's cgroup is a slice of systemd, which creates the containers' cgroups then.
#[must_use]
pub fn is_systemd_cgroup(parent: Option<&str>) -> bool {
    slice(parent).is_some()
}

fn directory(parent: Option<&str>) -> &str {
    parent.filter(|parent| !parent.is_empty()).unwrap_or("/podium").trim_end_matches('/')
}

fn slice(parent: Option<&str>) -> Option<&str> {
    directory(parent).rsplit('/').next().filter(|name| name.ends_with(".slice"))
}

#[cfg(test)]
mod tests;
