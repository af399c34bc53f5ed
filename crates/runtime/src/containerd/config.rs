//! Paths and configuration file of containerd.

use super::{
    ContainerdError,
    programs::{OciRuntime, Programs},
};
use crate::pause;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Maximum length of the socket path. The kernel's limit is 107 bytes, and shims append names to the state directory.
const MAX_SOCKET_PATH: usize = 90;
const CAP_SYS_RESOURCE: u32 = 24;

/// Paths of a containerd's files.
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
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            let digest = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
            let short = HEXLOWER.encode(&digest[..6]);
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

/// Writes the configuration and returns whether it has changed.
pub(super) fn write(paths: &Paths, programs: &Programs, cni_conf_dir: &Path) -> Result<bool, ContainerdError> {
    let prepare = |path: &Path| {
        let path = path.to_path_buf();
        move |source: io::Error| ContainerdError::Prepare { path, source }
    };
    if let Some(dir) = paths.socket.parent() {
        files::create_private_dir_all(dir).map_err(prepare(dir))?;
    }
    // containerd's own mode of these directories: root in a user namespace must be able to traverse them.
    for dir in paths.root.parent().into_iter().chain([paths.root.as_path(), paths.state.as_path()]) {
        files::create_dir_all_with_mode(dir, 0o711).map_err(prepare(dir))?;
    }
    let text = text(paths, programs, cni_conf_dir);
    let same = fs::read_to_string(&paths.config).is_ok_and(|old| old == text);
    if !same {
        files::replace_private(&paths.config, text.as_bytes()).map_err(prepare(&paths.config))?;
    }
    Ok(!same)
}

fn text(paths: &Paths, programs: &Programs, cni_conf_dir: &Path) -> String {
    // Unused plugins, which would slow down the start.
    let disabled = ["aufs", "btrfs", "devmapper", "zfs", "native"]
        .map(|s| format!("\"io.containerd.snapshotter.v1.{s}\""))
        .join(", ");
    // NRI is enabled since 2.0, with a socket that all containerds of a machine would share.
    let runtimes: String = programs.runtimes.iter().map(|(runtime, program)| handler(*runtime, program)).collect();
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
    default_runtime_name = "{default_runtime}"
{runtimes}
[plugins."io.containerd.nri.v1.nri"]
  disable = true
"#,
        root = quoted(&paths.root),
        state = quoted(&paths.state),
        socket = quoted(&paths.socket),
        pause = pause::IMAGE,
        restrict = !may_lower_oom_score(),
        cni_bin = quoted(&programs.cni_bin_dir),
        cni_conf = quoted(cni_conf_dir),
        default_runtime = programs.default_runtime.name(),
    )
}

/// Returns the configuration of an OCI runtime as the handler of RuntimeClasses. All use the same shim.
fn handler(runtime: OciRuntime, program: &Path) -> String {
    let table = format!(r#"plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{}"#, runtime.name());
    let program = quoted(program);
    format!(
        r#"    [{table}]
      runtime_type = "io.containerd.runc.v2"
      [{table}.options]
        BinaryName = {program}
        SystemdCgroup = false
"#
    )
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

/// Whether `oom_score_adj` can be lowered. Without CAP_SYS_RESOURCE every sandbox would fail.
fn may_lower_oom_score() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective =
        status.lines().find_map(|l| l.strip_prefix("CapEff:\t")).and_then(|h| u64::from_str_radix(h, 16).ok());
    effective.is_some_and(|caps| caps & (1 << CAP_SYS_RESOURCE) != 0)
}
