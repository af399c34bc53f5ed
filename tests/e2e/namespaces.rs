//! Linux namespaces shared with other containers or the node, host ports, host names, and mount propagation.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};
use std::{io::Read, net::TcpStream, path::Path};
use tests::{Cluster, Kubectl, PodBuilder, container, e2e_test, eventually};

fn apply(kubectl: &Kubectl, name: &str, spec: &Value) {
    kubectl.apply(&PodBuilder::new(name).grace_period(1).spec(spec).to_string());
}

fn run(kubectl: &Kubectl, spec: &Value) {
    apply(kubectl, "p", spec);
    kubectl.wait_ready("p");
}

fn exec(kubectl: &Kubectl, script: &str) -> String {
    kubectl.args(&["exec", "p", "-c", "c", "--", "sh", "-c", script], "").ok()
}

#[e2e_test("shareProcessNamespace shares processes between containers")]
fn share_process_namespace_shares_processes(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let two = json!([container("c", "sleep 11111"), container("d", "sleep 22222")]);
    run(&kubectl, &json!({"shareProcessNamespace": true, "containers": two}));
    let seen = exec(&kubectl, "ps; cat /proc/1/comm");
    assert!(["sleep 11111", "sleep 22222"].iter().all(|word| seen.contains(word)), "{seen}");
    let first = seen.lines().last().unwrap();
    assert!(["pause", "podium-pod-init"].contains(&first), "{seen}");
    assert!(!seen.contains(&cluster.data_dir().display().to_string()), "containers see no path of the node: {seen}");
    kubectl.run("delete pod p --wait").ok();
    run(&kubectl, &json!({"containers": two}));
    let seen = exec(&kubectl, "ps");
    assert!(seen.contains("sleep 11111") && !seen.contains("sleep 22222"), "{seen}");
}

#[e2e_test("hostNetwork, hostPID and hostIPC use the node's namespaces")]
fn host_namespaces_are_used(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let own = |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().display().to_string();
    let flags = [("net", "hostNetwork"), ("pid", "hostPID"), ("ipc", "hostIPC")];
    for (kind, flag) in flags {
        run(&kubectl, &json!({flag: true, "containers": [container("c", "sleep 10000")]}));
        for (other, _) in flags {
            let seen = exec(&kubectl, &format!("readlink /proc/self/ns/{other}"));
            assert_eq!(seen.trim() == own(other), other == kind, "{flag}, {other}: {seen}");
        }
        if flag == "hostNetwork" {
            assert_eq!(kubectl.value("pod/p", "/status/podIP"), kubectl.value("pod/p", "/status/hostIP"));
            assert!(exec(&kubectl, "cat /etc/hosts").starts_with("# Kubernetes-managed hosts file (host network)."));
        }
        kubectl.run("delete pod p --wait").ok();
    }
}

#[e2e_test("a host port reaches its Pod and is exclusive")]
fn host_port_reaches_pod_and_is_exclusive(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // A port outside of the kernel's ephemeral range, chosen by process ID to avoid conflicts.
    let free = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let serve = |name: &str| {
        let mut c = container(name, "while true; do echo hello from $HOSTNAME | nc -l -p 80; done");
        c["ports"] = json!([{"containerPort": 80, "hostPort": free}]);
        c
    };
    run(&kubectl, &json!({"containers": [serve("c")]}));
    let ip = kubectl.value("pod/p", "/status/hostIP");
    eventually("the host port to answer", || {
        let mut text = String::new();
        let answer = TcpStream::connect((ip.as_str().unwrap(), free)).and_then(|mut s| s.read_to_string(&mut text));
        answer.is_ok() && text == "hello from p\n"
    });
    // With a nodeName the kubelet rejects the Pod; the scheduler would leave it Pending.
    let node = kubectl.value("pod/p", "/spec/nodeName");
    apply(&kubectl, "q", &json!({"nodeName": node, "containers": [serve("c")]}));
    kubectl.wait_value("pod/q", "/status/reason", &json!("NodePorts"));
    let message =
        "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    assert_eq!(kubectl.value("pod/q", "/status/message"), json!(message));
}

#[e2e_test("hostname, subdomain and setHostnameAsFQDN name a Pod")]
fn hostname_fields_name_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let namespace = kubectl.namespace().to_owned();
    for (spec, expected) in [
        (json!({"hostname": "h", "subdomain": "s"}), "h".to_owned()),
        (json!({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true}), format!("h.s.{namespace}.svc.")),
        (json!({"hostnameOverride": "other.example"}), "other.example".to_owned()),
    ] {
        let mut spec = spec;
        spec["containers"] = json!([container("c", "sleep 10000")]);
        run(&kubectl, &spec);
        let seen = exec(&kubectl, "hostname; tail -1 /etc/hosts");
        assert!(seen.starts_with(&expected), "{spec}: {seen}");
        kubectl.run("delete pod p --wait").ok();
    }
}

#[e2e_test("subPathExpr, modes and optional sources of volumes")]
fn volumes_support_sub_path_expr_and_modes(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let config_map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": "1", "b": "2"}});
    kubectl.apply(&config_map.to_string());
    let mut c = container("c", "sleep 10000");
    c["env"] = json!([{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    c["volumeMounts"] = json!([{"name": "e", "mountPath": "/e"}, {"name": "e", "mountPath": "/own", "subPathExpr": "of/$(POD)"},
        {"name": "cm", "mountPath": "/cm"}, {"name": "none", "mountPath": "/none"}]);
    let items = json!([{"key": "a", "path": "deep/a", "mode": 0o400}, {"key": "b", "path": "b"}]);
    let volumes = json!([{"name": "e", "emptyDir": {}}, {"name": "cm", "configMap": {"name": "cm", "defaultMode": 0o640, "items": items}},
        {"name": "none", "secret": {"secretName": "missing", "optional": true}}]);
    run(&kubectl, &json!({"volumes": volumes, "containers": [c]}));
    assert_eq!(exec(&kubectl, "touch /own/x; ls /e/of/p"), "x\n");
    assert_eq!(exec(&kubectl, "stat -L -c '%a' /cm/deep/a /cm/b; cat /cm/deep/a /cm/b; ls /none"), "400\n640\n12");
}

#[e2e_test("a hostPath of the wrong type is reported")]
fn host_path_of_wrong_type_is_reported(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let file = cluster.data_dir().join("a-file");
    std::fs::write(&file, "x").unwrap();
    let path = file.display().to_string();
    let mut c = container("c", "sleep 10000");
    c["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let volumes = json!([{"name": "v", "hostPath": {"path": path, "type": "Directory"}}, {"name": "w", "configMap": {"name": "none"}}]);
    apply(&kubectl, "p", &json!({"volumes": volumes, "containers": [c]}));
    let expected =
        format!("MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {path} is not a directory");
    // Each failed volume is reported.
    let other = "MountVolume.SetUp failed for volume \"w\" : configmap \"none\" not found";
    for expected in [expected.as_str(), other] {
        eventually(expected, || {
            kubectl.events("p").iter().any(|(reason, message)| reason == "FailedMount" && message == expected)
        });
    }
}

/// A directory of the node with shared mount propagation.
struct SharedDir(tempfile::TempDir);

impl SharedDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let none = None::<&str>;
        mount(Some(dir.path()), dir.path(), none, MsFlags::MS_BIND, none).unwrap();
        mount(none, dir.path(), none, MsFlags::MS_SHARED, none).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SharedDir {
    /// Unmounts everything below it.
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

#[e2e_test("mounts propagate as mountPropagation says")]
fn mounts_propagate_by_mount_propagation(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let dir = SharedDir::new();
    let pod = |name: &str, propagation: &str, privileged: bool| {
        let mut c = container(name, "sleep 10000");
        c["volumeMounts"] = json!([{"name": "v", "mountPath": "/v", "mountPropagation": propagation}]);
        c["securityContext"] = json!({"privileged": privileged});
        c
    };
    let containers =
        json!([pod("c", "HostToContainer", false), pod("alone", "None", false), pod("both", "Bidirectional", true)]);
    run(&kubectl, &json!({"volumes": [{"name": "v", "hostPath": {"path": dir.path()}}], "containers": containers}));
    let inside = dir.path().join("of-the-node");
    std::fs::create_dir(&inside).unwrap();
    mount(Some("t"), &inside, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    std::fs::write(inside.join("f"), "").unwrap();
    let list = |container: &str, path: &str| kubectl.args(&["exec", "p", "-c", container, "--", "ls", path], "").ok();
    let seen = ["c", "alone", "both"].map(|name| list(name, "/v/of-the-node"));
    assert_eq!(seen, ["f\n", "", "f\n"]);
    let script = "mkdir /v/of-the-pod && mount -t tmpfs t /v/of-the-pod && touch /v/of-the-pod/g";
    kubectl.args(&["exec", "p", "-c", "both", "--", "sh", "-c", script], "").ok();
    assert!(dir.path().join("of-the-pod/g").exists());
    assert_eq!(list("c", "/v/of-the-pod"), "g\n");
    kubectl.run("delete pod p --wait --timeout=90s").ok();
}

#[e2e_test("recursive read-only mounts make submounts read-only")]
fn recursive_read_only_mounts_include_submounts(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let node = kubectl.run("get nodes -o name").ok();
    let handlers = kubectl.value(node.trim(), "/status/runtimeHandlers");
    let is_supported = handlers
        .as_array()
        .into_iter()
        .flatten()
        .any(|handler| handler["name"] == "" && handler["features"]["recursiveReadOnlyMounts"] == true);
    let dir = SharedDir::new();
    let inside = dir.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    mount(Some("t"), &inside, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let container = |name: &str, mode: Option<&str>| {
        let mut c = container(name, "sleep 10000");
        c["volumeMounts"] = json!([{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": mode}]);
        c
    };
    let spec = |containers: &[Value]| json!({"volumes": [{"name": "v", "hostPath": {"path": dir.path()}}], "containers": containers});
    run(&kubectl, &spec(&[container("plain", None), container("possible", Some("IfPossible"))]));
    let can_write = |name: &str, path: &str| {
        let script = format!("touch {path} 2>/dev/null && echo yes || echo no");
        kubectl.args(&["exec", "p", "-c", name, "--", "sh", "-c", &script], "").ok() == "yes\n"
    };
    assert!(!can_write("plain", "/v/x") && can_write("plain", "/v/inside/x"));
    assert_eq!(can_write("possible", "/v/inside/y"), !is_supported);
    let mode = |index: usize| {
        kubectl.value("pod/p", &format!("/status/containerStatuses/{index}/volumeMounts/0/recursiveReadOnly"))
    };
    assert_eq!([mode(0), mode(1)], [json!("Disabled"), json!(if is_supported { "Enabled" } else { "Disabled" })]);
    kubectl.run("delete pod p --wait --timeout=90s").ok();
    let required = spec(&[container("required", Some("Enabled"))]);
    if is_supported {
        run(&kubectl, &required);
        assert!(!can_write("required", "/v/inside/z") && inside.join("x").exists());
        assert_eq!(mode(0), json!("Enabled"));
    } else {
        kubectl.apply(&PodBuilder::new("p").spec(&required).to_string());
        let message = "volume \"v\" requested recursive read-only mode, but it is not supported by the runtime";
        kubectl.wait_value("pod/p", "/status/containerStatuses/0/state/waiting/message", &json!(message));
    }
    kubectl.run("delete pod p --wait --timeout=90s").ok();
}
