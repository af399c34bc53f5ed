//! Configuration of containerd and its Pod network.

use crate::slot::Slot;
use serde_json::json;
use std::{fs, io, path::Path};

/// Directories of the CNI plugins: that of their releases, and Debian's.
const CNI_BIN_DIRS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];

/// Writes the configuration files of a slot.
pub(crate) fn write(slot: &Slot) -> io::Result<()> {
    let cni_bin_dir = CNI_BIN_DIRS.into_iter().find(|dir| Path::new(dir).join("bridge").exists());
    let cni_bin_dir = cni_bin_dir.ok_or_else(|| io::Error::other("there are no CNI plugins"))?;
    let cni_conf_dir = slot.dir().join("cni");
    fs::create_dir(&cni_conf_dir)?;
    fs::write(cni_conf_dir.join("10-test.conflist"), network(slot))?;
    fs::write(slot.config(), containerd(slot, cni_bin_dir, &cni_conf_dir))
}

/// Returns the configuration of containerd. Everything that is below `/run`, `/opt` or `/var` by default is in the slot's
/// directory, so that its removal is complete; the sockets of shims are not configurable.
fn containerd(slot: &Slot, cni_bin_dir: &str, cni_conf_dir: &Path) -> String {
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    format!(
        r#"version = 2
root = {root}
state = {state}
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = {socket}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Containers of unprivileged machines cannot get a lower score.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_bin_dir}"
    conf_dir = {cni_conf_dir}
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = {runc}
      SystemdCgroup = false

# Enabled since 2.0, with a socket that all containerds of a machine share.
[plugins."io.containerd.nri.v1.nri"]
  disable = true
"#,
        root = quoted(&slot.dir().join("root")),
        state = quoted(&slot.dir().join("state")),
        socket = quoted(&slot.socket()),
        pause = test_images::PAUSE,
        cni_conf_dir = quoted(cni_conf_dir),
        runc = quoted(&slot.dir().join("runc")),
    )
}

/// Returns the CNI configuration list, as an administrator of a single node would write it.
fn network(slot: &Slot) -> String {
    let bridge = json!({
        "type": "bridge", "bridge": slot.bridge(), "isGateway": true, "hairpinMode": true,
        "ipam": {
            "type": "host-local", "dataDir": slot.dir().join("ipam"),
            "ranges": [[{"subnet": format!("{}/24", slot.subnet())}]], "routes": [{"dst": "0.0.0.0/0"}],
        },
    });
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    json!({"cniVersion": "0.4.0", "name": slot.bridge(), "plugins": [bridge, portmap]}).to_string()
}
