//! Specification of the sandbox container, which an OCI runtime with a sandbox for each Pod needs (containerd's
//! `internal/cri/server/podsandbox/sandbox_run_linux.go`).

use crate::{Error, HostInfo, OCI_VERSION, PodNamespaces, annotations, cgroups_path, namespaces, pause_program};
use oci_spec::runtime::{Capabilities, Linux, LinuxCapabilities, Mount, Process, Root, Spec};
use runtime::SandboxConfig;

/// Path of [`pause_program`] in the root file system.
pub const PAUSE_PATH: &str = "/pause";
/// Directories that the root file system must have: its mount points.
pub const SANDBOX_DIRECTORIES: [&str; 2] = ["proc", "dev"];

/// Returns the OCI configuration of the sandbox container of a Pod. Its ID is that of the sandbox, its root file system the
/// directory `rootfs` of the bundle with the program [`PAUSE_PATH`]. It has no limits but those of the Pod's cgroup.
///
/// # Errors
/// When there is no program for the architecture.
pub fn sandbox_container_spec(
    id: &str,
    sandbox: &SandboxConfig,
    pod: &PodNamespaces,
    host: &HostInfo,
) -> Result<Spec, Error> {
    if pause_program(host.architecture).is_none() {
        return Err(Error::PauseProgram);
    }
    let mut root = Root::default();
    root.set_path("rootfs".into()).set_readonly(Some(true));
    let mut process = Process::default();
    process
        .set_terminal(Some(false))
        .set_args(Some(vec![PAUSE_PATH.to_owned()]))
        .set_env(Some(Vec::new()))
        .set_cwd("/".into())
        .set_capabilities(Some(no_capabilities()))
        .set_rlimits(None)
        .set_no_new_privileges(Some(true));
    let mut linux = Linux::default();
    linux
        .set_resources(None)
        .set_cgroups_path(Some(cgroups_path(sandbox.cgroup_parent.as_deref(), id).into()))
        .set_namespaces(Some(namespaces::pod_namespaces(pod)))
        .set_devices(None)
        .set_masked_paths(None)
        .set_readonly_paths(None);
    // gVisor takes the host name of all containers from it, not from the UTS namespace.
    let hostname = if sandbox.hostname.is_empty() { &host.hostname } else { &sandbox.hostname };
    let mut spec = Spec::default();
    spec.set_version(OCI_VERSION.to_owned())
        .set_root(Some(root))
        .set_process(Some(process))
        .set_hostname((!hostname.is_empty()).then(|| hostname.clone()))
        .set_annotations(Some(annotations::sandbox_annotations(id, sandbox)))
        .set_linux(Some(linux))
        .set_mounts(Some(vec![
            mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ]));
    Ok(spec)
}

fn no_capabilities() -> LinuxCapabilities {
    let mut capabilities = LinuxCapabilities::default();
    capabilities
        .set_bounding(Some(Capabilities::new()))
        .set_effective(Some(Capabilities::new()))
        .set_inheritable(Some(Capabilities::new()))
        .set_permitted(Some(Capabilities::new()))
        .set_ambient(Some(Capabilities::new()));
    capabilities
}

fn mount(target: &str, kind: &str, options: &[&str]) -> Mount {
    let mut mount = Mount::default();
    mount
        .set_destination(target.into())
        .set_typ(Some(kind.to_owned()))
        .set_source(Some(kind.into()))
        .set_options(Some(options.iter().map(|option| (*option).to_owned()).collect()));
    mount
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Namespace, encode};
    use expect_test::expect_file;

    fn spec(hostname: &str, architecture: Architecture) -> Result<Spec, Error> {
        let sandbox = SandboxConfig {
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            uid: "uid-1".to_owned(),
            hostname: hostname.to_owned(),
            log_directory: "/var/log/pods/web".into(),
            cgroup_parent: Some("/kubepods/burstable/poduid-1".to_owned()),
            ..SandboxConfig::default()
        };
        let keeper = |descriptor: u32| Namespace::Path(format!("/proc/42/fd/{descriptor}").into());
        let pod = PodNamespaces { network: keeper(3), ipc: keeper(4), uts: keeper(5), ..PodNamespaces::default() };
        sandbox_container_spec(
            "s1",
            &sandbox,
            &pod,
            &HostInfo { architecture, hostname: "node".to_owned(), ..HostInfo::default() },
        )
    }

    #[test]
    fn sandbox_container_is_the_sandbox_of_its_pod() {
        let found = String::from_utf8(encode(&spec("web-0", Architecture::X86_64).unwrap()).unwrap()).unwrap() + "\n";
        expect_file!["tests/whole/sandbox_container.json"].assert_eq(&found);
    }

    #[test]
    fn pod_without_host_name_has_that_of_the_node() {
        let spec = spec("", Architecture::X86_64).unwrap();
        assert_eq!(spec.hostname().as_deref(), Some("node"));
    }

    #[test]
    fn architecture_without_program_is_an_error() {
        let error = spec("", Architecture::S390x).unwrap_err().to_string();
        assert!(error.contains("processor"), "{error}");
    }
}
