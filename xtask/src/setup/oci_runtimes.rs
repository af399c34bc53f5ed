//! Newer OCI runtimes than those of this machine, for tests: those of Debian's next release, with the libraries that they were
//! linked with.

use super::fetch::empty_dir;
use crate::step::{self, output_of};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Fetched programs.
const PROGRAMS: [&str; 2] = ["runc", "crun"];
/// A release by its codename, not "testing": its versions change until it is stable, and never become older.
const RELEASE: &str = "forky";
/// Keys of Debian's archive. Without the file, those of apt apply.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Lists packages with those that must be installed together with them.
const DEPENDENCIES: [&str; 8] = [
    "depends",
    "--recurse",
    "--no-recommends",
    "--no-suggests",
    "--no-conflicts",
    "--no-breaks",
    "--no-replaces",
    "--no-enhances",
];

/// Fetches `oci-runtimes/runc` and `oci-runtimes/crun` below `tools`, unless an earlier run did. Nothing is installed. apt
/// verifies the signature of the release.
///
/// # Errors
/// When the machine's Debian mirror does not have them, or they do not run here.
pub(super) fn fetch(tools: &Path) -> Result<()> {
    // The paths of the libraries are absolute, so that programs of a moved directory do not run.
    let dir = tools.join("oci-runtimes");
    if PROGRAMS.iter().all(|name| step::answers(&dir.join(name).display().to_string(), "--version")) {
        return Ok(());
    }
    let work = empty_dir(tools, "oci-runtimes")?;
    download(&work)?;
    println!("==> unpack the packages");
    for package in fs::read_dir(&work)?.collect::<Result<Vec<_>, _>>()? {
        if package.path().extension().is_some_and(|extension| extension == "deb") {
            output_of(Command::new("dpkg-deb").arg("--extract").arg(package.path()).arg(&work))?;
        }
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let lib = dir.join("lib");
    fs::rename(library_dir(&work)?, &lib)?;
    for name in PROGRAMS {
        let paths = ["usr/sbin", "usr/bin"].map(|bin| work.join(bin).join(name));
        let program = paths.into_iter().find(|path| path.is_file()).with_context(|| format!("no program {name}"))?;
        use_libraries(&program, &lib, &work.join("usr/bin/patchelf"))?;
        fs::rename(&program, dir.join(name))?;
        step::run(&format!("verify {name}"), Command::new(dir.join(name)).arg("--version"))?;
    }
    Ok(fs::remove_dir_all(&work)?)
}

/// Downloads the packages of the programs and of all their libraries to `work`.
fn download(work: &Path) -> Result<()> {
    let filter = ["Created-By: Packages", "Origin: Debian", "Label: Debian"];
    let mirrors = output_of(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]).args(filter))?;
    let mirror = mirrors.lines().next().context("apt has no Debian mirror: apt-get update")?;
    let sources = work.join("release.sources");
    let keys = if Path::new(KEYS).exists() { format!("Signed-By: {KEYS}\n") } else { String::new() };
    fs::write(&sources, format!("Types: deb\nURIs: {mirror}\nSuites: {RELEASE}\nComponents: main\n{keys}"))?;
    for dir in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(work.join(dir))?;
    }
    let apt = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(work).args(["-qq", "-o", "Dir::Etc::SourceParts=/dev/null"]);
        // Installed packages of this machine are of another release.
        command.args(["-o", "Dir::State::Status=/dev/null", "-o", "APT::Sandbox::User=root"]);
        command.args([
            "-o",
            "Acquire::Languages=none",
            "-o",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
        ]);
        for (option, path) in [("Etc::SourceList", &sources), ("State::Lists", &work.join("lists"))] {
            command.arg("-o").arg(format!("Dir::{option}={}", path.display()));
        }
        command.arg("-o").arg(format!("Dir::Cache={}", work.join("cache").display()));
        command
    };
    step::run(&format!("apt-get update for Debian {RELEASE}"), apt("apt-get").arg("update"))?;
    let wanted = PROGRAMS.into_iter().chain(["patchelf"]);
    let dependencies = output_of(apt("apt-cache").args(DEPENDENCIES).args(wanted))?;
    let packages = packages_of(&dependencies);
    step::run(
        &format!("fetch {} and their libraries", PROGRAMS.join(", ")),
        apt("apt-get").arg("download").args(packages),
    )
}

/// Reads the output of `apt-cache depends --recurse`: a package, then its indented dependencies. Virtual packages are in angle
/// brackets.
fn packages_of(dependencies: &str) -> Vec<&str> {
    dependencies.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric())).collect()
}

/// Makes a program use the dynamic linker and the libraries of a directory. `patchelf` itself runs with them, too.
fn use_libraries(program: &Path, lib: &Path, patchelf: &Path) -> Result<()> {
    let patchelf = |linker: &Path| {
        let mut command = Command::new(linker);
        command.arg("--library-path").arg(lib).arg(patchelf);
        command
    };
    let linker = fs::read_dir(lib)?.flatten().map(|entry| entry.path()).find(|path| is_dynamic_linker(path));
    let linker = linker.with_context(|| format!("no dynamic linker in {}", lib.display()))?;
    let mut change = patchelf(&linker);
    // Not a `RUNPATH`, which the libraries of libraries do not have.
    change.arg("--set-interpreter").arg(&linker).args(["--force-rpath", "--set-rpath"]).arg(lib).arg(program);
    output_of(&mut change).map(drop)
}

fn is_dynamic_linker(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("ld-linux"))
}

/// Returns the directory of the unpacked libraries, whose name has the architecture.
fn library_dir(work: &Path) -> Result<PathBuf> {
    let dirs = fs::read_dir(work.join("usr/lib"))?.flatten().map(|entry| entry.path());
    dirs.into_iter().find(|dir| dir.join("libc.so.6").exists()).context("the packages have no libc.so.6")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_their_dependencies() {
        let text = "runc\n  Depends: libc6\n    libc6:i386\nlibc6\n<libc-virtual>\nlibstdc++6\n  Depends: <gcc-base>\n";
        assert_eq!(packages_of(text), ["runc", "libc6", "libstdc++6"]);
    }
}
