//! What the translation must know of the machine. The caller reads it.

use crate::{CapabilitySet, DeviceNode};
use std::collections::BTreeSet;

/// Features of the machine and of its OCI runtime.
#[derive(Debug, Clone, Default)]
pub struct HostInfo {
    /// Host name of the node, for Pods with its network.
    pub hostname: String,
    /// Architecture of the kernel.
    pub architecture: Architecture,
    /// Kernel version: major and minor number.
    pub kernel: (u32, u32),
    /// Capabilities that a container can get: those of this process (`CapEff` of `/proc/self/status`).
    pub capabilities: CapabilitySet,
    /// OOM score adjustment of this process. Without `CAP_SYS_RESOURCE`, no container can have a lower one.
    pub oom_score_adj: i32,
    /// Whether the kernel has seccomp filters.
    pub seccomp: bool,
    /// Whether `/sys/fs/cgroup` is the unified hierarchy (cgroup v2).
    pub cgroup_v2: bool,
    /// Options of the node's mount of `/sys/fs/cgroup`, of which a container without a cgroup namespace must keep some.
    pub cgroup_mount_options: Vec<String>,
    /// Whether swap has a limit (`memory.swap.max`, or `memory.memsw.limit_in_bytes` with cgroup v1).
    pub swap_limit: bool,
    /// Whether the cgroup controller `hugetlb` exists. Limits of huge pages have no effect without it.
    pub hugetlb: bool,
    /// All device nodes below `/dev`, for privileged containers.
    pub devices: Vec<DeviceNode>,
    /// Paths to mask in addition to the default list: `/sys/devices/system/cpu/cpu<n>/thermal_throttle`, where they
    /// exist.
    pub masked_paths: Vec<String>,
}

/// AppArmor of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppArmor {
    /// Profile of `RuntimeDefault`, and of containers without a profile; or why none is loaded.
    pub default_profile: Result<String, String>,
    /// Names of the loaded profiles (`/sys/kernel/security/apparmor/profiles`).
    pub loaded: BTreeSet<String>,
}

/// Architecture of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// `amd64`.
    X86_64,
    /// `386`.
    X86,
    /// `arm64`.
    Aarch64,
    /// `arm`.
    Arm,
    /// `ppc64le`.
    Powerpc64le,
    /// `riscv64`.
    Riscv64,
    /// `s390x`.
    S390x,
    /// `loong64`.
    Loongarch64,
    /// Another one: libseccomp selects it.
    Other,
}

impl Default for Architecture {
    /// Returns the architecture of this program.
    fn default() -> Self {
        match std::env::consts::ARCH {
            "x86_64" => Self::X86_64,
            "x86" => Self::X86,
            "aarch64" => Self::Aarch64,
            "arm" => Self::Arm,
            "powerpc64" if cfg!(target_endian = "little") => Self::Powerpc64le,
            "riscv64" => Self::Riscv64,
            "s390x" => Self::S390x,
            "loongarch64" => Self::Loongarch64,
            _ => Self::Other,
        }
    }
}
