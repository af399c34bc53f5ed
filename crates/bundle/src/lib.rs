//! Translation of a container's configuration into an OCI runtime specification (`config.json`), as containerd's CRI
//! plugin does it (`internal/cri/server/container_create.go`, `internal/cri/opts`, `pkg/oci` of containerd 2).
//!
//! **Invariant:** no I/O. Files of the image, mounts, devices and features of the machine are arguments, so that one
//! input has one output, which tests compare as a whole.
//!
//! **Invariant:** nothing that an image or a Pod contains panics; files of images and profiles are bounded.
#![forbid(unsafe_code)]

mod annotations;
mod apparmor;
mod capabilities;
mod context;
mod devices;
mod encode;
mod error;
mod host;
mod image_config;
mod linux;
mod masked_paths;
mod mounts;
mod namespaces;
mod path;
mod pause;
mod process;
mod resources;
mod sandbox_container;
mod seccomp;
mod sysctls;
#[cfg(test)]
mod tests;
mod users;

pub use capabilities::CapabilitySet;
pub use context::{ContainerContext, DeviceSource, MountSource, PodFiles, SourcePropagation};
pub use devices::{DeviceKind, DeviceNode};
pub use encode::encode;
pub use error::Error;
pub use host::{AppArmor, Architecture, HostInfo};
pub use image_config::ImageConfig;
pub use mounts::image_volumes;
pub use namespaces::{Namespace, PodNamespaces};
pub use oci_spec::runtime::{Capability, LinuxResources, Process, Spec};
pub use pause::pause_program;
pub use process::exec_process;
pub use resources::{cgroup_path, cgroups_path, is_systemd_cgroup, linux_resources, update_resources};
pub use sandbox_container::{PAUSE_PATH, SANDBOX_DIRECTORIES, sandbox_container_spec};
pub use seccomp::MAX_PROFILE_BYTES;
pub use sysctls::sandbox_sysctls;
pub use users::{MAX_USER_FILE_BYTES, UserDatabase};

use oci_spec::runtime::Root;

/// Version of the runtime specification: the newest that all runtimes in use accept.
const OCI_VERSION: &str = "1.0.2";

/// Returns the OCI configuration of a container. Its root file system is the directory `rootfs` of the bundle.
///
/// Host name and sysctls are not in it: the namespaces of the Pod have them already ([`sandbox_sysctls`]).
///
/// # Errors
/// When the Pod, the image or a profile is invalid, or requires what the machine does not have.
pub fn container_spec(context: &ContainerContext<'_>, host: &HostInfo) -> Result<Spec, Error> {
    let security = &context.config.security;
    if security.privileged && !context.sandbox.privileged {
        return Err(Error::Privileged);
    }
    let capabilities = capabilities::container_capabilities(security, host)?;
    let mut root = Root::default();
    root.set_path("rootfs".into()).set_readonly(Some(security.readonly_rootfs));
    let mounts = mounts::container_mounts(context, host)?;
    let mut spec = Spec::default();
    spec.set_version(OCI_VERSION.to_owned())
        .set_root(Some(root))
        .set_process(Some(process::container_process(context, host, capabilities)?))
        .set_hostname(None)
        .set_annotations(Some(annotations::container_annotations(context)))
        .set_linux(Some(linux::container_linux(context, host, capabilities, mounts.propagation)?))
        .set_mounts(Some(mounts.mounts));
    Ok(spec)
}
