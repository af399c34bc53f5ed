//! Where containerd's files are, and what its configuration says.

use super::ContainerdError;
use crate::pause;
use sha2::{Digest, Sha256};
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// The kernel's limit is 107 bytes; shims add names of their own below the state directory.
const LONGEST_SOCKET_PATH: usize = 90;
const CAP_SYS_RESOURCE: u32 = 24;

/// Files of one containerd.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    pub(super) data_dir: PathBuf,
    pub(super) root: PathBuf,
    pub(super) state: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) config: PathBuf,
    pub(super) log: PathBuf,
    pub(super) pid: PathBuf,
}

impl Paths {
    pub(super) fn new(data_dir: &Path) -> Self {
        let base = data_dir.join("containerd");
        let mut socket = base.join("containerd.sock");
        if socket.as_os_str().len() > LONGEST_SOCKET_PATH {
            let digest = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
            let short: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
            socket = PathBuf::from(format!("/run/podium-{short}/containerd.sock"));
        }
        Self {
            data_dir: data_dir.to_path_buf(),
            root: base.join("root"),
            state: base.join("state"),
            socket,
            config: base.join("config.toml"),
            log: base.join("containerd.log"),
            pid: base.join("containerd.pid"),
        }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

/// The programs that containerd needs.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) containerd: PathBuf,
    cni_bin_dir: PathBuf,
}

impl Programs {
    pub(super) fn find() -> Result<Self, ContainerdError> {
        let mut missing = Vec::new();
        let mut find = |name: &str| {
            let found = find_program(name);
            if found.is_none() {
                missing.push(name.to_owned());
            }
            found.unwrap_or_default()
        };
        let containerd = find("containerd");
        find("containerd-shim-runc-v2");
        find("runc");
        find("ctr");
        let cni = ["/opt/cni/bin", "/usr/lib/cni"].into_iter().map(PathBuf::from).find(|d| d.join("bridge").is_file());
        if cni.is_none() {
            missing.push("the CNI plugin bridge".to_owned());
        }
        if missing.is_empty() {
            Ok(Self { containerd, cni_bin_dir: cni.unwrap_or_default() })
        } else {
            Err(ContainerdError::MissingPrograms(missing))
        }
    }
}

pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    program_dirs().map(|d| d.join(name)).find(|p| p.is_file())
}

/// The directories of programs, for containerd and its shims as well: a service's PATH often lacks those of `runc`.
pub(super) fn search_path() -> OsString {
    std::env::join_paths(program_dirs()).unwrap_or_default()
}

fn program_dirs() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let given: Vec<PathBuf> = std::env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty()).collect();
    let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/usr/local/bin"].map(PathBuf::from);
    given.into_iter().chain(usual)
}

/// Writes the configuration and says whether it is another than before.
pub(super) fn write(paths: &Paths, programs: &Programs, cni_conf_dir: &Path) -> Result<bool, ContainerdError> {
    let prepare = |path: &Path| {
        let path = path.to_path_buf();
        move |source: io::Error| ContainerdError::Prepare { path, source }
    };
    for dir in [&paths.root, &paths.state].into_iter().map(PathBuf::as_path).chain(paths.socket.parent()) {
        fs::create_dir_all(dir).map_err(prepare(dir))?;
    }
    let text = text(paths, programs, cni_conf_dir);
    let same = fs::read_to_string(&paths.config).is_ok_and(|old| old == text);
    if !same {
        fs::write(&paths.config, text).map_err(prepare(&paths.config))?;
    }
    Ok(!same)
}

fn text(paths: &Paths, programs: &Programs, cni_conf_dir: &Path) -> String {
    let quoted = |p: &Path| format!("{:?}", p.display().to_string());
    // Plugins that Podium has no use for: each costs time at the start.
    let disabled = ["aufs", "btrfs", "devmapper", "zfs", "native"]
        .map(|s| format!("\"io.containerd.snapshotter.v1.{s}\""))
        .join(", ");
    format!(
        r#"version = 2
root = {root}
state = {state}
disabled_plugins = [{disabled}, "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
  address = {socket}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = {restrict}
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  max_container_log_line_size = 16384
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {cni_bin}
    conf_dir = {cni_conf}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"#,
        root = quoted(&paths.root),
        state = quoted(&paths.state),
        socket = quoted(&paths.socket),
        pause = pause::IMAGE,
        restrict = !may_lower_oom_score(),
        cni_bin = quoted(&programs.cni_bin_dir),
        cni_conf = quoted(cni_conf_dir),
    )
}

/// Without CAP_SYS_RESOURCE `oom_score_adj` cannot be lowered, and every sandbox would fail.
fn may_lower_oom_score() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective =
        status.lines().find_map(|l| l.strip_prefix("CapEff:\t")).and_then(|h| u64::from_str_radix(h, 16).ok());
    effective.is_some_and(|caps| caps & (1 << CAP_SYS_RESOURCE) != 0)
}
