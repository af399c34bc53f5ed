//! Profiles of `Localhost`: files on the node, in OCI's or in Docker's form.

use crate::{Architecture, CapabilitySet, HostInfo};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSyscall,
};
use serde::Deserialize;
use std::path::PathBuf;

/// Maximum size of a profile in bytes. Docker's default profile has 20 kB.
pub const MAX_PROFILE_BYTES: usize = 1 << 20;

/// A profile. Docker's form has conditions (`includes`, `excludes`) and a map of architectures (`archMap`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: Option<LinuxSeccompAction>,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Option<Vec<Arch>>,
    #[serde(default)]
    arch_map: Option<Vec<ArchitectureMap>>,
    #[serde(default)]
    flags: Option<Vec<LinuxSeccompFilterFlag>>,
    listener_path: Option<PathBuf>,
    listener_metadata: Option<String>,
    #[serde(default)]
    syscalls: Option<Vec<Call>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchitectureMap {
    architecture: Arch,
    #[serde(default)]
    sub_architectures: Option<Vec<Arch>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    #[serde(default)]
    name: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    action: LinuxSeccompAction,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<LinuxSeccompArg>>,
    #[serde(default)]
    includes: Option<Conditions>,
    #[serde(default)]
    excludes: Option<Conditions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Conditions {
    caps: Option<Vec<String>>,
    arches: Option<Vec<String>>,
    min_kernel: Option<String>,
}

/// Parses a profile for a container with these capabilities (Moby's `setupSeccomp`). `None`: the profile has no
/// content, which is no filter.
///
/// # Errors
/// When it is larger than 1 MiB, is not JSON, has an unknown action, architecture, flag or operator, or contradicts
/// itself.
pub(super) fn parse(
    profile: &[u8],
    host: &HostInfo,
    capabilities: CapabilitySet,
) -> Result<Option<LinuxSeccomp>, String> {
    if profile.len() > MAX_PROFILE_BYTES {
        return Err(format!("{} bytes exceed {MAX_PROFILE_BYTES}", profile.len()));
    }
    let profile: Profile = serde_json::from_slice(profile).map_err(|e| e.to_string())?;
    let calls = profile.syscalls.unwrap_or_default();
    let Some(default_action) = profile.default_action else {
        return if calls.is_empty() { Ok(None) } else { Err("missing field `defaultAction`".to_owned()) };
    };
    let architectures = match (profile.architectures.unwrap_or_default(), profile.arch_map.unwrap_or_default()) {
        (list, map) if !list.is_empty() && !map.is_empty() => {
            return Err("both 'architectures' and 'archMap' are specified in the seccomp profile".to_owned());
        }
        (list, map) if map.is_empty() => list,
        (_, map) => mapped_architectures(host.architecture, map),
    };
    let mut syscalls = Vec::new();
    for call in calls {
        if applies(&call, host, capabilities)? {
            syscalls.push(syscall(call)?);
        }
    }
    let mut seccomp = LinuxSeccomp::default();
    seccomp
        .set_default_action(default_action)
        .set_default_errno_ret(profile.default_errno_ret)
        .set_architectures(Some(architectures).filter(|list| !list.is_empty()))
        .set_flags(profile.flags)
        .set_listener_path(profile.listener_path.filter(|path| !path.as_os_str().is_empty()))
        .set_listener_metadata(profile.listener_metadata.filter(|data| !data.is_empty()))
        .set_syscalls(Some(syscalls));
    Ok(Some(seccomp))
}

/// Returns the architecture of the node with its sub-architectures.
fn mapped_architectures(architecture: Architecture, map: Vec<ArchitectureMap>) -> Vec<Arch> {
    let native = match architecture {
        Architecture::X86_64 => Arch::ScmpArchX86_64,
        Architecture::X86 => Arch::ScmpArchX86,
        Architecture::Aarch64 => Arch::ScmpArchAarch64,
        Architecture::Arm => Arch::ScmpArchArm,
        Architecture::Powerpc64le => Arch::ScmpArchPpc64le,
        Architecture::Riscv64 => Arch::ScmpArchRiscv64,
        Architecture::S390x => Arch::ScmpArchS390x,
        Architecture::Loongarch64 => Arch::ScmpArchLoongarch64,
        Architecture::Other => return Vec::new(),
    };
    let entry = map.into_iter().find(|entry| entry.architecture == native);
    entry.map(|entry| [vec![native], entry.sub_architectures.unwrap_or_default()].concat()).unwrap_or_default()
}

/// Returns whether the conditions of a rule hold: all of `includes`, and none of `excludes`.
fn applies(call: &Call, host: &HostInfo, capabilities: CapabilitySet) -> Result<bool, String> {
    let has_capability = |name: &String| {
        let name = name.strip_prefix("CAP_").unwrap_or(name);
        name.parse().is_ok_and(|capability| capabilities.contains(capability))
    };
    let is_architecture = |name: &String| Some(name.as_str()) == go_architecture(host.architecture);
    if let Some(excludes) = &call.excludes {
        let is_excluded = excludes.arches.iter().flatten().any(is_architecture)
            || excludes.caps.iter().flatten().any(has_capability)
            || is_kernel_at_least(excludes, host)?.unwrap_or(false);
        if is_excluded {
            return Ok(false);
        }
    }
    let Some(includes) = &call.includes else { return Ok(true) };
    let arches = includes.arches.as_deref().unwrap_or_default();
    Ok((arches.is_empty() || arches.iter().any(is_architecture))
        && includes.caps.iter().flatten().all(has_capability)
        && is_kernel_at_least(includes, host)?.unwrap_or(true))
}

fn is_kernel_at_least(conditions: &Conditions, host: &HostInfo) -> Result<Option<bool>, String> {
    let Some(version) = conditions.min_kernel.as_deref().filter(|version| !version.is_empty()) else {
        return Ok(None);
    };
    let mut parts = version.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor)), None) => Ok(Some(host.kernel >= (major, minor))),
        _ => Err(format!("invalid kernel version {version:?}, expected MAJOR.MINOR")),
    }
}

/// Returns the name of an architecture in conditions: Go's.
fn go_architecture(architecture: Architecture) -> Option<&'static str> {
    Some(match architecture {
        Architecture::X86_64 => "amd64",
        Architecture::X86 => "x86",
        Architecture::Aarch64 => "arm64",
        Architecture::Arm => "arm",
        Architecture::Powerpc64le => "ppc64le",
        Architecture::Riscv64 => "riscv64",
        Architecture::S390x => "s390x",
        Architecture::Loongarch64 => "loong64",
        Architecture::Other => return None,
    })
}

fn syscall(call: Call) -> Result<LinuxSyscall, String> {
    let names = match (call.name, call.names.unwrap_or_default()) {
        (name, names) if !name.is_empty() && !names.is_empty() => {
            return Err("both 'name' and 'names' are specified in the seccomp profile".to_owned());
        }
        (name, names) if name.is_empty() => names,
        (name, _) => vec![name],
    };
    if names.is_empty() {
        return Err("a rule without names".to_owned());
    }
    let mut found = LinuxSyscall::default();
    found
        .set_names(names)
        .set_action(call.action)
        .set_errno_ret(call.errno_ret)
        .set_args(call.args.filter(|args| !args.is_empty()));
    Ok(found)
}
