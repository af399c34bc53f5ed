//! seccomp profile of a container.

mod localhost;
mod table;
#[cfg(test)]
mod tests;

use crate::{CapabilitySet, ContainerContext, Error, HostInfo};
pub use localhost::MAX_PROFILE_BYTES;
use oci_spec::runtime::{
    Capability, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator,
    LinuxSyscall,
};
use runtime::SeccompProfile;

/// Returns the profile of a container; `None` for no filter. Privileged containers have none.
pub(crate) fn container_seccomp(
    context: &ContainerContext<'_>,
    host: &HostInfo,
    capabilities: CapabilitySet,
) -> Result<Option<LinuxSeccomp>, Error> {
    let security = &context.config.security;
    match &security.seccomp {
        _ if security.privileged => Ok(None),
        SeccompProfile::Unconfined => Ok(None),
        _ if !host.seccomp => Err(Error::SeccompUnsupported),
        SeccompProfile::RuntimeDefault => default_profile(host, capabilities).map(Some),
        SeccompProfile::Localhost(path) => match context.seccomp_profile {
            Err(cause) => Err(Error::LoadSeccomp { path: path.clone(), cause: cause.to_owned() }),
            Ok(profile) => localhost::parse(profile, host, capabilities)
                .map_err(|cause| Error::DecodeSeccomp { path: path.clone(), cause }),
        },
    }
}

/// Returns the profile of `RuntimeDefault`: what the table allows, and `EPERM` for the rest.
fn default_profile(host: &HostInfo, capabilities: CapabilitySet) -> Result<LinuxSeccomp, Error> {
    use LinuxSeccompOperator::{ScmpCmpEq, ScmpCmpGt, ScmpCmpLt, ScmpCmpMaskedEq};
    let mut calls = vec![allow(table::ALLOWED, None)];
    // Each rule has one condition: runc and libseccomp treat two of the same argument as alternatives.
    for (operator, family) in [(ScmpCmpLt, table::AF_ALG), (ScmpCmpEq, table::AF_ALG + 1), (ScmpCmpGt, table::AF_VSOCK)]
    {
        calls.push(allow("socket", Some(argument(0, family, None, operator)?)));
    }
    for personality in table::PERSONALITIES {
        calls.push(allow("personality", Some(argument(0, personality, None, ScmpCmpEq)?)));
    }
    if host.kernel >= (4, 8) {
        calls.push(allow(table::TRACING, None));
    }
    let by_architecture = table::of_architecture(host.architecture);
    calls.extend(
        by_architecture.into_iter().chain(table::of_capabilities(capabilities)).map(|names| allow(names, None)),
    );
    if !capabilities.contains(Capability::SysAdmin) {
        let flags = table::clone_flags_argument(host.architecture);
        calls.push(allow("clone", Some(argument(flags, table::CLONE_NAMESPACES, Some(0), ScmpCmpMaskedEq)?)));
        let mut clone3 = LinuxSyscall::default();
        clone3
            .set_names(vec!["clone3".to_owned()])
            .set_action(LinuxSeccompAction::ScmpActErrno)
            .set_errno_ret(Some(table::ENOSYS));
        calls.push(clone3);
    }
    let mut profile = LinuxSeccomp::default();
    let architectures = table::architectures(host.architecture);
    profile
        .set_default_action(LinuxSeccompAction::ScmpActErrno)
        .set_architectures(Some(architectures.to_vec()).filter(|list| !list.is_empty()))
        .set_syscalls(Some(calls));
    Ok(profile)
}

fn allow(names: &str, argument: Option<LinuxSeccompArg>) -> LinuxSyscall {
    let mut call = LinuxSyscall::default();
    call.set_names(names.split_whitespace().map(str::to_owned).collect())
        .set_action(LinuxSeccompAction::ScmpActAllow)
        .set_args(argument.map(|argument| vec![argument]));
    call
}

fn argument(
    index: usize,
    value: u64,
    value_two: Option<u64>,
    operator: LinuxSeccompOperator,
) -> Result<LinuxSeccompArg, Error> {
    let builder = LinuxSeccompArgBuilder::default().index(index).value(value).op(operator);
    let builder = match value_two {
        Some(value_two) => builder.value_two(value_two),
        None => builder,
    };
    builder.build().map_err(|e| Error::Encode(e.to_string()))
}
