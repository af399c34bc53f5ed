//! Paths of `/proc` and `/sys` that containers cannot read or write.

use crate::HostInfo;
use runtime::SecurityContext;

/// Default masked paths of upstream's kubelet (`pkg/securitycontext/util.go`).
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Default read-only paths of upstream's kubelet.
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Returns the paths that appear empty. Privileged containers have none.
pub(crate) fn masked_paths(security: &SecurityContext, host: &HostInfo) -> Vec<String> {
    let default = || MASKED.iter().map(|path| (*path).to_owned()).chain(host.masked_paths.iter().cloned()).collect();
    paths(security, security.masked_paths.as_ref(), default)
}

/// Returns the paths that are read-only. Privileged containers have none.
pub(crate) fn readonly_paths(security: &SecurityContext) -> Vec<String> {
    paths(security, security.readonly_paths.as_ref(), || READONLY.map(str::to_owned).into())
}

fn paths(security: &SecurityContext, own: Option<&Vec<String>>, default: impl FnOnce() -> Vec<String>) -> Vec<String> {
    match own {
        _ if security.privileged => Vec::new(),
        Some(own) => own.clone(),
        None => default(),
    }
}
