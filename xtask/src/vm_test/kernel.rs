//! Debian's stock kernel, taken from its package without installing it.

use super::output_of;
use crate::step;
use anyhow::{Context, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Package that depends on the newest kernel. The kernel for clouds has the drivers of NVMe disks and ext4 built in, so
/// that it boots without an initial RAM disk.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// An unpacked kernel package.
pub(super) struct Kernel {
    /// The bootable file.
    pub(super) image: PathBuf,
    /// `lib/modules` of the package.
    pub(super) modules: PathBuf,
    /// Version, as in the names of its files.
    pub(super) version: String,
}

/// Fetches the kernel, unless an earlier run did.
pub(super) fn fetch(dir: &Path) -> Result<Kernel> {
    if let Ok(kernel) = find(dir) {
        return Ok(kernel);
    }
    let work = dir.with_extension("incomplete");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    let depends = output_of(Command::new("apt-cache").args(["depends", PACKAGE]))?;
    let package = newest(&depends).with_context(|| format!("{PACKAGE} depends on no kernel: apt-get update"))?;
    step::run(
        &format!("fetch the Debian package {package}"),
        Command::new("apt-get").args(["download", "-qq", "-o", "APT::Sandbox::User=root", package]).current_dir(&work),
    )?;
    for entry in fs::read_dir(&work)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            step::run("unpack the kernel", Command::new("dpkg-deb").arg("--extract").arg(&path).arg(&work))?;
            fs::remove_file(path)?;
        }
    }
    // Renamed last, so that an existing directory is complete.
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    fs::rename(&work, dir)?;
    find(dir)
}

/// Returns the kernel package in the output of `apt-cache depends`.
fn newest(depends: &str) -> Option<&str> {
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
}

fn find(dir: &Path) -> Result<Kernel> {
    for entry in fs::read_dir(dir.join("boot"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(version) = name.strip_prefix("vmlinuz-").map(str::to_owned) else { continue };
        // Debian 13 has its modules in /usr.
        let modules =
            ["lib/modules", "usr/lib/modules"].map(|path| dir.join(path)).into_iter().find(|dir| dir.is_dir());
        return Ok(Kernel { image: entry.path(), modules: modules.context("the kernel has no modules")?, version });
    }
    bail!("no kernel in {}", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_package_is_found_among_dependencies() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n  Depends: other\n";
        assert_eq!(newest(text), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(newest("linux-image-cloud-amd64\n"), None);
    }
}
