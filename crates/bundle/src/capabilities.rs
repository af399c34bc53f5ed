//! Capabilities of a container.

use crate::{Error, HostInfo};
use oci_spec::runtime::{Capabilities, Capability, LinuxCapabilities};
use runtime::SecurityContext;

/// All capabilities of Linux, each at its number (`linux/capability.h`).
const ALL: [Capability; 41] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setpcap,
    Capability::LinuxImmutable,
    Capability::NetBindService,
    Capability::NetBroadcast,
    Capability::NetAdmin,
    Capability::NetRaw,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysChroot,
    Capability::SysPtrace,
    Capability::SysPacct,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysNice,
    Capability::SysResource,
    Capability::SysTime,
    Capability::SysTtyConfig,
    Capability::Mknod,
    Capability::Lease,
    Capability::AuditWrite,
    Capability::AuditControl,
    Capability::Setfcap,
    Capability::MacOverride,
    Capability::MacAdmin,
    Capability::Syslog,
    Capability::WakeAlarm,
    Capability::BlockSuspend,
    Capability::AuditRead,
    Capability::Perfmon,
    Capability::Bpf,
    Capability::CheckpointRestore,
];

/// Default capabilities of containers (containerd's `defaultUnixCaps`, and Docker's).
const DEFAULT: [Capability; 14] = [
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Mknod,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysChroot,
];

/// A set of capabilities, as the kernel's bit mask. Bits that this program does not know are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapabilitySet(u64);

impl CapabilitySet {
    /// Returns the set of a bit mask, for example of `CapEff` in `/proc/self/status`.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << ALL.len()) - 1))
    }

    /// Returns the bit mask.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether the set has a capability.
    #[must_use]
    pub fn contains(self, capability: Capability) -> bool {
        self.0 & bit(capability) != 0
    }

    fn of(capabilities: &[Capability]) -> Self {
        Self(capabilities.iter().fold(0, |bits, capability| bits | bit(*capability)))
    }

    /// Returns the capabilities, in the order of their numbers.
    pub(crate) fn iter(self) -> impl Iterator<Item = Capability> {
        ALL.into_iter().filter(move |capability| self.contains(*capability))
    }
}

fn bit(capability: Capability) -> u64 {
    ALL.iter().position(|known| *known == capability).map_or(0, |number| 1 << number)
}

/// Returns the capabilities of a container: the default ones that the machine has, with additions and removals.
///
/// `ALL` is applied first, so that `add: [ALL]` with `drop: [CHOWN]` is all but one. Unlike containerd, which leaves
/// them to the OCI runtime, which ignores them, unknown and unavailable capabilities are errors, as with Docker.
pub(crate) fn container_capabilities(security: &SecurityContext, host: &HostInfo) -> Result<CapabilitySet, Error> {
    let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
    let (add, drop) = (&security.add_capabilities, &security.drop_capabilities);
    let mut set = CapabilitySet::of(&DEFAULT).0 & host.capabilities.0;
    if add.iter().any(is_all) {
        set = host.capabilities.0;
    }
    if drop.iter().any(is_all) {
        set = 0;
    }
    for name in add.iter().filter(|name| !is_all(name)) {
        let capability = parse(name, "add")?;
        if !host.capabilities.contains(capability) {
            return Err(Error::UnavailableCapability(format!("CAP_{capability}")));
        }
        set |= bit(capability);
    }
    for name in drop.iter().filter(|name| !is_all(name)) {
        set &= !bit(parse(name, "drop")?);
    }
    Ok(if security.privileged { host.capabilities } else { CapabilitySet(set) })
}

fn parse(name: &str, action: &'static str) -> Result<Capability, Error> {
    let name = name.to_ascii_uppercase();
    name.parse().map_err(|_| Error::UnknownCapability { action, name: format!("CAP_{name}") })
}

/// Returns the sets of a process. Inheritable and ambient ones are empty: a process that is not root has no
/// capabilities unless its program's file has them.
pub(crate) fn process_capabilities(set: CapabilitySet) -> LinuxCapabilities {
    let all: Capabilities = set.iter().collect();
    let mut capabilities = LinuxCapabilities::default();
    capabilities
        .set_bounding(Some(all.clone()))
        .set_effective(Some(all.clone()))
        .set_permitted(Some(all))
        .set_inheritable(None)
        .set_ambient(None);
    capabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of the default set: those of `CapBnd` in a container of Docker or containerd.
    const DEFAULT_BITS: u64 = 0xa804_25fb;

    #[track_caller]
    fn check(add: &[&str], drop: &[&str], host: u64, expected: Result<u64, &str>) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let security = SecurityContext {
            add_capabilities: owned(add),
            drop_capabilities: owned(drop),
            ..SecurityContext::default()
        };
        let host = HostInfo { capabilities: CapabilitySet::from_bits(host), ..HostInfo::default() };
        let found = container_capabilities(&security, &host).map(CapabilitySet::bits).map_err(|e| e.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(CapabilitySet::of(&DEFAULT).bits(), DEFAULT_BITS);
        assert_eq!(CapabilitySet::from_bits(u64::MAX).bits(), 0x1ff_ffff_ffff);
        assert_eq!(bit(Capability::SysAdmin), 1 << 21);
        assert_eq!(bit(Capability::CheckpointRestore), 1 << 40);
        assert_eq!(CapabilitySet::from_bits(u64::MAX).iter().count(), ALL.len());
    }

    #[test]
    fn additions_and_removals_change_the_default_set() {
        let all = 0x1ff_ffff_ffff;
        check(&[], &[], all, Ok(DEFAULT_BITS));
        check(&["NET_ADMIN"], &["chown"], all, Ok((DEFAULT_BITS | 1 << 12) & !1));
        check(&["ALL"], &[], all, Ok(all));
        check(&["ALL"], &["CHOWN"], all, Ok(all & !1));
        check(&["CHOWN"], &["ALL"], all, Ok(1));
        check(&["all"], &["All"], all, Ok(0));
        check(&["CHOWN"], &["CHOWN"], all, Ok(DEFAULT_BITS & !1));
    }

    #[test]
    fn unknown_and_unavailable_capabilities_are_errors() {
        let all = 0x1ff_ffff_ffff;
        check(&["FLY"], &[], all, Err("unknown capability to add: \"CAP_FLY\""));
        check(&["CAP_CHOWN"], &[], all, Err("unknown capability to add: \"CAP_CAP_CHOWN\""));
        check(&[], &[""], all, Err("unknown capability to drop: \"CAP_\""));
        let unavailable =
            "capability not supported by your kernel or not available in the current environment: \"CAP_BPF\"";
        check(&["bpf"], &[], all & !(1 << 39), Err(unavailable));
        check(&["ALL"], &["BPF"], all & !(1 << 39), Ok(all & !(1 << 39)));
        check(&[], &[], 0b11, Ok(0b11));
    }

    #[test]
    fn privileged_container_has_all_of_the_machine() {
        let drop_capabilities = vec!["ALL".to_owned()];
        let security = SecurityContext { privileged: true, drop_capabilities, ..SecurityContext::default() };
        let host = HostInfo { capabilities: CapabilitySet::from_bits(0xffff), ..HostInfo::default() };
        assert_eq!(container_capabilities(&security, &host), Ok(CapabilitySet(0xffff)));
    }
}
