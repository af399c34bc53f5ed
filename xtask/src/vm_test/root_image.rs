//! The root file system of the virtual machine: programs of this machine with their libraries, kernel modules, Podium and
//! its tests, in an ext4 image that is written without mounting it.

use super::{
    Programs,
    init::{RUN_SCRIPT, RUN_TESTS, SCRIPT, TEST_LIST},
    kernel::Kernel,
    output_of, systemd,
};
use crate::step;
use anyhow::{Context, Result, bail};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

/// Programs of this machine that Podium and the tests run. Everything else is busybox.
const PROGRAMS: &[&str] = &["runc", "crun", "nft", "conntrack", "ip", "kubectl", "apparmor_parser"];
/// Programs that the tests look up in the directory of fetched tools.
const TOOLS: &[&str] = &["kubectl-1.35"];
/// Configuration of this machine's programs: the features of AppArmor that profiles name.
const CONFIGURATION: &[&str] = &["etc/apparmor", "etc/apparmor.d/abi", "usr/share/apparmor-features"];
/// Size of the file system; the image is sparse.
const SIZE: &str = "6G";

const FILES: &[(&str, &str)] = &[
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n192.0.2.2 vm-test\n"),
    ("etc/resolv.conf", "nameserver 192.0.2.1\n"),
    ("etc/hostname", "vm-test\n"),
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("etc/os-release", "ID=vm-test\nPRETTY_NAME=\"Podium's virtual machine\"\n"),
];

/// Builds the tree and the image. `tests` are the lines that select tests.
pub(super) fn build(
    root: &Path,
    image: &Path,
    kernel: &Kernel,
    programs: &Programs,
    path: &OsStr,
    tests: &str,
) -> Result<()> {
    println!("==> build the root file system");
    for old in [root, image] {
        match fs::symlink_metadata(old) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(old)?,
            Ok(_) => fs::remove_file(old)?,
            Err(_) => {}
        }
    }
    for dir in ["proc", "sys", "dev", "run", "tmp", "root", "var/lib", "etc", "bin", "usr/bin", "usr/sbin", "sbin"] {
        fs::create_dir_all(root.join(dir))?;
    }
    fs::create_dir_all(root.join("etc/systemd/system"))?;
    for (name, text) in FILES.iter().chain(systemd::FILES) {
        fs::write(root.join(name), text)?;
    }
    // The address of the system bus is below /var/run.
    symlink("../run", root.join("var/run"))?;
    install_busybox(root)?;
    copy_programs(root, programs, path)?;
    copy_modules(root, kernel)?;
    for dir in CONFIGURATION {
        let to = root.join(dir);
        fs::create_dir_all(&to)?;
        output_of(Command::new("cp").arg("-rT").arg(Path::new("/").join(dir)).arg(to))?;
    }
    fs::create_dir_all(root.join("podium/tests"))?;
    fs::write(root.join(TEST_LIST), tests)?;
    for (name, script) in [("init", SCRIPT), (RUN_TESTS, RUN_SCRIPT)] {
        fs::write(root.join(name), script)?;
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755))?;
    }
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.env("PATH", path).args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d"]);
    step::run("write the image", mke2fs.arg(root).arg(image).arg(SIZE))
}

/// Installs busybox with a link for each of its commands.
fn install_busybox(root: &Path) -> Result<()> {
    let found = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new).into_iter().find(|path| path.exists());
    let busybox = found.context("there is no static busybox")?;
    copy(busybox, &root.join("bin/busybox"))?;
    for applet in output_of(Command::new(busybox).arg("--list"))?.lines().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    // The kernel loads modules by this path.
    symlink("/bin/busybox", root.join("sbin/modprobe"))?;
    Ok(())
}

fn copy_programs(root: &Path, programs: &Programs, path: &OsStr) -> Result<()> {
    let mut found = Vec::new();
    for name in PROGRAMS {
        let program = std::env::split_paths(path).map(|dir| dir.join(name)).find(|program| program.is_file());
        found.push((program.with_context(|| format!("there is no {name}"))?, root.join("usr/bin").join(name)));
    }
    let optional = systemd::OPTIONAL_PROGRAMS.iter().filter(|(program, _)| Path::new(program).exists());
    found.extend(systemd::PROGRAMS.iter().chain(optional).map(|(program, copied)| (program.into(), root.join(copied))));
    let target = root.join("podium/target");
    for name in TOOLS {
        found.push((step::target_dir().join("tools").join(name), target.join("tools").join(name)));
    }
    for (program, copied) in [(&programs.podium, "debug/podium"), (&programs.tests, "debug/deps/e2e")] {
        found.push((program.clone(), target.join(copied)));
    }
    let mut libraries = BTreeSet::new();
    for (program, copied) in &found {
        copy(program, copied)?;
        libraries.extend(shared_libraries(program)?);
    }
    for library in libraries {
        let below = library.strip_prefix("/").unwrap_or(&library);
        copy(&library, &root.join(below))?;
    }
    let own = [target.join("debug/podium"), target.join("debug/deps/e2e")];
    output_of(Command::new("strip").args(own)).map(drop)
}

/// Returns the libraries of a program, with the dynamic linker; none for a static one.
fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("not found") {
        bail!("{} lacks libraries: {text}", program.display());
    }
    Ok(libraries_of(&text))
}

/// Reads the output of `ldd`: `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)`.
fn libraries_of(text: &str) -> Vec<PathBuf> {
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

fn copy_modules(root: &Path, kernel: &Kernel) -> Result<()> {
    let lib = root.join("lib/modules");
    fs::create_dir_all(&lib)?;
    let from = kernel.modules.join(&kernel.version);
    output_of(Command::new("cp").arg("-a").arg(&from).arg(&lib))?;
    output_of(Command::new("busybox").arg("depmod").arg("-b").arg(root).arg(&kernel.version)).map(drop)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x7ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\
                    \t/lib64/ld.so.2 (0x7f)\n";
        assert_eq!(libraries_of(text), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld.so.2"].map(PathBuf::from));
        assert_eq!(libraries_of("\tnot a dynamic executable\n"), Vec::<PathBuf>::new());
    }
}
