//! Discovery of the programs that containerd needs, and of the installed OCI runtimes.

use super::ContainerdError;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    str::FromStr,
};

/// OCI runtime of the managed containerd. Its program name is the handler of a RuntimeClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OciRuntime {
    /// Reference implementation, the usual default.
    #[default]
    Runc,
    /// Implementation in C, which starts containers in a third of `runc`'s time. It does not support hybrid cgroups: some
    /// controllers in a v1 hierarchy and some in v2.
    Crun,
}

impl OciRuntime {
    /// All OCI runtimes.
    pub const ALL: [Self; 2] = [Self::Runc, Self::Crun];

    /// Returns the name of the program, the handler and the Debian package.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
        }
    }
}

/// Error for an unknown OCI runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Podium's own containerd has {}", OciRuntime::ALL.map(OciRuntime::name).join(" and "))]
pub struct UnknownOciRuntime;

impl FromStr for OciRuntime {
    type Err = UnknownOciRuntime;

    fn from_str(name: &str) -> Result<Self, UnknownOciRuntime> {
        Self::ALL.into_iter().find(|runtime| runtime.name() == name).ok_or(UnknownOciRuntime)
    }
}

/// Programs required by containerd.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) containerd: PathBuf,
    pub(super) cni_bin_dir: PathBuf,
    /// Installed OCI runtimes and their paths.
    pub(super) runtimes: Vec<(OciRuntime, PathBuf)>,
    /// OCI runtime of Pods without a RuntimeClass.
    pub(super) default_runtime: OciRuntime,
}

impl Programs {
    /// Finds the required programs.
    ///
    /// # Errors
    /// If programs are missing (the error lists all), or the default runtime does not support this machine's cgroups.
    pub(super) fn find(default_runtime: OciRuntime) -> Result<Self, ContainerdError> {
        let mut missing = Vec::new();
        let mut find = |name: &str, package: &'static str| {
            let found = find_program(name);
            if found.is_none() {
                missing.push((name.to_owned(), package));
            }
            found.unwrap_or_default()
        };
        let containerd = find("containerd", "containerd");
        find("containerd-shim-runc-v2", "containerd");
        find("ctr", "containerd");
        find(default_runtime.name(), default_runtime.name());
        let cni = ["/opt/cni/bin", "/usr/lib/cni"].into_iter().map(PathBuf::from).find(|d| d.join("bridge").is_file());
        if cni.is_none() {
            missing.push(("the CNI plugin bridge".to_owned(), "containernetworking-plugins"));
        }
        if !missing.is_empty() {
            return Err(ContainerdError::missing(missing));
        }
        if default_runtime == OciRuntime::Crun && has_controllers(Path::new("/sys/fs/cgroup/unified")) {
            return Err(ContainerdError::MixedCgroups);
        }
        let installed = |runtime: OciRuntime| Some((runtime, find_program(runtime.name())?));
        let runtimes = OciRuntime::ALL.into_iter().filter_map(installed).collect();
        Ok(Self { containerd, cni_bin_dir: cni.unwrap_or_default(), runtimes, default_runtime })
    }
}

/// Whether a cgroup v2 hierarchy of a hybrid setup has controllers.
fn has_controllers(hierarchy: &Path) -> bool {
    std::fs::read_to_string(hierarchy.join("cgroup.controllers")).is_ok_and(|names| !names.trim().is_empty())
}

pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    program_dirs().map(|d| d.join(name)).find(|p| p.is_file())
}

/// Returns the PATH for the lookup of programs, also by containerd and its shims: a service's PATH often lacks the sbin
/// directories.
pub(super) fn search_path() -> OsString {
    std::env::join_paths(program_dirs()).unwrap_or_default()
}

fn program_dirs() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let configured: Vec<PathBuf> = std::env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty()).collect();
    let defaults = ["/usr/sbin", "/usr/bin", "/sbin", "/usr/local/bin"].map(PathBuf::from);
    configured.into_iter().chain(defaults)
}
