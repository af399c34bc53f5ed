//! Whole specifications, as files beside this one. `UPDATE_EXPECT=1 cargo test --package bundle` writes them.

use super::Input;
use crate::{
    DeviceKind, DeviceNode, DeviceSource, Error, MountSource, Namespace, PodFiles, PodNamespaces, SourcePropagation,
    encode,
};
use expect_test::{ExpectFile, expect_file};
use runtime::{Device, IdMapping, Mount, NamespaceMode, Propagation, SeccompProfile};
use serde_json::json;

/// Returns a typical container of a Pod.
fn typical() -> Input {
    let mut input = Input::default();
    input.sandbox.name = "web".to_owned();
    input.sandbox.namespace = "default".to_owned();
    input.sandbox.uid = "uid-1".to_owned();
    input.sandbox.hostname = "web".to_owned();
    input.sandbox.cgroup_parent = Some("/kubepods/burstable/poduid-1".to_owned());
    input.sandbox.privileged = false;
    input.config.name = "app".to_owned();
    input.config.image = "busybox:1.28".to_owned();
    input.config.env = vec![("A".to_owned(), "1".to_owned())];
    input.config.resources.cpu_shares = 102;
    input.config.resources.memory_limit = 64 << 20;
    input.config.resources.oom_score_adj = 983;
    let keeper = |descriptor: u32| Namespace::Path(format!("/proc/42/fd/{descriptor}").into());
    input.namespaces = PodNamespaces { network: keeper(3), ipc: keeper(4), uts: keeper(5), ..PodNamespaces::default() };
    input.files = PodFiles {
        hostname: Some("/pods/s1/hostname".into()),
        hosts: Some("/pods/s1/hosts".into()),
        resolv_conf: Some("/pods/s1/resolv.conf".into()),
        shm: Some("/pods/s1/shm".into()),
    };
    input.host.cgroup_v2 = true;
    input.host.swap_limit = true;
    input
}

fn device(path: &str, major: i64, minor: i64) -> DeviceNode {
    DeviceNode { path: path.into(), kind: DeviceKind::Char, major, minor, mode: 0o20_660, uid: 0, gid: 5 }
}

#[track_caller]
fn check(input: &Input, expected: ExpectFile) {
    expected.assert_eq(&(String::from_utf8(encode(&input.spec().unwrap()).unwrap()).unwrap() + "\n"));
}

#[test]
fn default_container_is_translated() {
    check(&typical(), expect_file!["whole/default.json"]);
}

#[test]
fn privileged_container_is_translated() {
    let mut input = typical();
    input.sandbox.privileged = true;
    input.config.security.privileged = true;
    input.config.security.seccomp = SeccompProfile::RuntimeDefault;
    input.host.devices = vec![device("/dev/kvm", 10, 232), device("/dev/net/tun", 10, 200)];
    input.config.devices =
        vec![Device { host_path: "/dev/null".into(), container_path: "/dev/kvm".into(), permissions: "r".to_owned() }];
    input.devices = vec![DeviceSource { path: "/dev/null".into(), nodes: vec![device("/dev/null", 1, 3)] }];
    check(&input, expect_file!["whole/privileged.json"]);
}

#[test]
fn container_with_the_nodes_namespaces_is_translated() {
    let mut input = typical();
    input.sandbox.hostname = String::new();
    let (network, ipc, uts) = (Namespace::Node, Namespace::Node, Namespace::Node);
    input.namespaces = PodNamespaces { network, ipc, uts, pid: Namespace::Node, ..PodNamespaces::default() };
    let node = NamespaceMode::Node;
    input.config.security.namespaces = runtime::Namespaces { network: node, pid: node, ipc: node, users: None };
    input.sandbox.namespaces = input.config.security.namespaces;
    check(&input, expect_file!["whole/host_namespaces.json"]);
}

#[test]
fn container_with_terminal_user_and_mounts_is_translated() {
    let mut input = typical();
    let users = Some(IdMapping { host_id: 131_072, length: 65_536 });
    input.config.security.namespaces.users = users;
    input.sandbox.namespaces.users = users;
    input.namespaces.user = Namespace::Path("/proc/42/fd/6".into());
    input.namespaces.pid = Namespace::Path("/proc/42/fd/7".into());
    input.config.tty = true;
    input.config.security.run_as_user = Some(1000);
    input.config.security.supplemental_groups = vec![2000];
    input.config.security.no_new_privs = true;
    input.config.security.readonly_rootfs = true;
    input.config.security.drop_capabilities = vec!["ALL".to_owned()];
    input.config.security.add_capabilities = vec!["NET_BIND_SERVICE".to_owned()];
    input.config.security.masked_paths = Some(Vec::new());
    input.config.working_dir = "/work".to_owned();
    input.config.mounts = vec![Mount {
        host_path: "/v".into(),
        image: None,
        container_path: "/work".to_owned(),
        readonly: true,
        recursive_read_only: false,
        propagation: Propagation::HostToContainer,
    }];
    input.mounts = vec![MountSource { propagation: SourcePropagation::Shared, ..MountSource::new("/v") }];
    check(&input, expect_file!["whole/terminal.json"]);
}

#[test]
fn devices_are_allowed_by_the_cgroup() {
    let mut input = Input::default();
    let (permissions, container_path) = ("rw".to_owned(), "/dev/gpu".into());
    input.config.devices = vec![Device { host_path: "/dev/dri".into(), container_path, permissions }];
    let nodes = vec![device("/dev/dri/card0", 226, 0), device("/dev/dri/by-path/x", 226, 128)];
    input.devices = vec![DeviceSource { path: "/dev/dri".into(), nodes }];
    let tree = input.tree();
    let node = |path, minor| json!({"path": path, "type": "c", "major": 226, "minor": minor, "fileMode": 432, "uid": 0, "gid": 5});
    assert_eq!(tree["linux"]["devices"], json!([node("/dev/gpu/card0", 0), node("/dev/gpu/by-path/x", 128)]));
    let rule = |minor| json!({"allow": true, "type": "c", "major": 226, "minor": minor, "access": "rw"});
    let rules = json!([{"allow": false, "access": "rwm"}, rule(0), rule(128)]);
    assert_eq!(tree["linux"]["resources"]["devices"], rules);
    input.devices.clear();
    assert_eq!(input.spec().unwrap_err().to_string(), "failed to find the device \"/dev/dri\"");
}

#[test]
fn privileged_container_needs_a_privileged_pod() {
    let mut input = Input::default();
    input.config.security.privileged = true;
    input.sandbox.privileged = false;
    assert_eq!(input.spec(), Err(Error::Privileged));
}

#[test]
fn mapping_of_a_user_namespace_is_checked() {
    let mut input = Input::default();
    for (host_id, length) in [(1, 0), (u32::MAX, 1)] {
        input.config.security.namespaces.users = Some(IdMapping { host_id, length });
        input.sandbox.namespaces.users = input.config.security.namespaces.users;
        assert_eq!(input.spec(), Err(Error::UserNamespaceMapping { host_id, length }));
    }
}

#[test]
fn masked_paths_are_the_default_ones_unless_unmasked() {
    let mut input = Input::default();
    input.host.masked_paths = vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".to_owned()];
    let masked = input.tree()["linux"]["maskedPaths"].clone();
    assert_eq!((masked[0].as_str(), masked.as_array().unwrap().len()), (Some("/proc/asound"), 13));
    assert_eq!(masked[12], input.host.masked_paths[0]);
    input.config.security.masked_paths = Some(Vec::new());
    input.config.security.readonly_paths = Some(vec!["/proc/x".to_owned()]);
    let linux = input.tree()["linux"].clone();
    assert_eq!((&linux["maskedPaths"], &linux["readonlyPaths"]), (&json!([]), &json!(["/proc/x"])));
}

#[test]
fn same_input_has_the_same_bytes() {
    let encoded = || encode(&typical().spec().unwrap()).unwrap();
    assert!((0..20).all(|_| encoded() == encoded()));
}
