//! Static Pods and their mirror Pods.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, e2e_test, eventually};

/// A cluster with a directory of static Pod manifests.
struct Node {
    cluster: Cluster,
    dir: tempfile::TempDir,
}

impl Node {
    fn new(manifests: &[(&str, Value)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, manifest) in manifests {
            std::fs::write(dir.path().join(name), manifest.to_string()).unwrap();
        }
        let kubelet = json!({"staticPodPath": dir.path(), "fileCheckFrequency": "1h"});
        let cluster = ClusterBuilder::default().kubelet_config(kubelet).args(&["--node-name", "node-1"]).start();
        Self { cluster, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, manifest: &Value) {
        std::fs::write(self.file(name), manifest.to_string()).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.file(name)).unwrap();
    }

    fn kubectl(&self) -> Kubectl {
        self.cluster.kubectl_in("default")
    }
}

fn manifest(name: &str, policy: &str, script: &str) -> Value {
    PodBuilder::new(name).restart_policy(policy).grace_period(5).script(script).build()
}

fn forever(word: &str) -> String {
    format!("trap 'exit 0' TERM; echo {word}; while :; do sleep 0.1; done")
}

/// Returns the UID of the static Pod and the ID of its container.
fn identity(kubectl: &Kubectl, pod: &str) -> (Value, Value) {
    let hash = kubectl.value(pod, "/metadata/annotations/kubernetes.io~1config.hash");
    (hash, kubectl.value(pod, "/status/containerStatuses/0/containerID"))
}

fn running(kubectl: &Kubectl, pod: &str) {
    eventually("the mirror Pod", || kubectl.get(pod).is_some());
    kubectl.run(&format!("wait --for=condition=Ready --timeout=60s {pod}")).ok();
}

#[e2e_test("a static Pod follows its manifest file")]
fn static_pod_follows_its_manifest() {
    let node = Node::new(&[]);
    let (kubectl, pod) = (node.kubectl(), "pod/web-node-1");
    node.write("web.json", &manifest("web", "Always", &forever("one")));
    running(&kubectl, pod);
    let mirror = kubectl.get(pod).unwrap();
    let annotations = &mirror["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.mirror"], annotations["kubernetes.io/config.hash"]);
    assert_ne!(annotations["kubernetes.io/config.hash"], mirror["metadata"]["uid"]);
    let owner = &mirror["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["controller"]),
        (&json!("Node"), &json!("node-1"), &json!(true))
    );
    assert_eq!(owner["uid"], kubectl.value("node/node-1", "/metadata/uid"));
    // A manifest has no generation, so observedGeneration is unset.
    assert_eq!((&mirror["status"]["observedGeneration"], &mirror["metadata"]["generation"]), (&Value::Null, &json!(1)));
    // Logs, exec and others work through the mirror Pod.
    kubectl.wait_for_output("logs web-node-1", "one\n");
    assert_eq!(kubectl.args(&["exec", "web-node-1", "--", "echo", "hello"], "").ok(), "hello\n");
    eventually("owner and Events in the description", || {
        let described = kubectl.run("describe pod web-node-1").ok();
        described.contains("Controlled By:  Node/node-1") && described.contains("Started")
    });
    // A changed manifest is another Pod, which starts after the end of the first.
    let before = identity(&kubectl, pod);
    node.write("web.json", &manifest("web", "Always", &forever("two")));
    eventually("the new Pod to run", || kubectl.get(pod).is_some() && kubectl.run("logs web-node-1").stdout == "two\n");
    assert_ne!(identity(&kubectl, pod).0, before.0);
    // Removing the manifest removes the Pod and its files.
    node.remove("web.json");
    kubectl.run(&format!("wait --for=delete --timeout=90s {pod}")).ok();
    let pods = node.cluster.data_dir().join("kubelet/pods");
    eventually("its files to be removed", || files(&pods) == 0);
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, |entries| entries.flatten().count())
}

#[e2e_test("a deleted mirror Pod is recreated and its static Pod keeps running")]
fn deleted_mirror_pod_is_recreated() {
    let node = Node::new(&[("p.json", manifest("p", "Always", &forever("here")))]);
    let (kubectl, pod) = (node.kubectl(), "pod/p-node-1");
    running(&kubectl, pod);
    let before = identity(&kubectl, pod);
    for flags in ["", "--grace-period=0 --force"] {
        let uid = kubectl.value(pod, "/metadata/uid");
        kubectl.run(&format!("delete {pod} --timeout=90s {flags}")).ok();
        eventually("another mirror Pod", || kubectl.get(pod).is_some_and(|p| p["metadata"]["uid"] != uid));
        running(&kubectl, pod);
        assert_eq!(identity(&kubectl, pod), before, "{flags:?}: the static Pod ran on");
        assert_eq!(kubectl.value(pod, "/status/containerStatuses/0/restartCount"), json!(0), "{flags:?}");
    }
}

#[e2e_test("static Pods survive a restart, and a removed manifest ends its Pod")]
fn static_pods_survive_podium_restart() {
    let mut node = Node::new(&[
        ("stays.json", manifest("stays", "Always", &forever("here"))),
        ("goes.json", manifest("goes", "Always", &forever("there"))),
    ]);
    let kubectl = node.kubectl();
    for pod in ["pod/stays-node-1", "pod/goes-node-1"] {
        running(&kubectl, pod);
    }
    let before = (identity(&kubectl, "pod/stays-node-1"), kubectl.value("pod/stays-node-1", "/metadata/uid"));
    node.cluster.stop_podium(Signal::SIGKILL);
    node.remove("goes.json");
    node.write("comes.json", &manifest("comes", "Always", &forever("new")));
    node.cluster.start_podium();
    let kubectl = node.kubectl();
    running(&kubectl, "pod/comes-node-1");
    kubectl.run("wait --for=delete --timeout=90s pod/goes-node-1").ok();
    let after = (identity(&kubectl, "pod/stays-node-1"), kubectl.value("pod/stays-node-1", "/metadata/uid"));
    assert_eq!(after, before, "neither the Pod nor its mirror is made anew");
}

#[e2e_test("static Pods reach a terminal phase")]
fn static_pods_reach_terminal_phase() {
    let node = Node::new(&[
        ("good.json", manifest("good", "Never", "exit 0")),
        ("bad.json", manifest("bad", "Never", "exit 3")),
    ]);
    let kubectl = node.kubectl();
    for (name, phase) in [("good", "Succeeded"), ("bad", "Failed")] {
        let pod = format!("pod/{name}-node-1");
        eventually("the mirror Pod", || kubectl.get(&pod).is_some());
        kubectl.wait_value(&pod, "/status/phase", &json!(phase));
        // A recreated mirror Pod shows the same end, because the Pod does not run twice.
        let id = kubectl.value(&pod, "/status/containerStatuses/0/containerID");
        let uid = kubectl.value(&pod, "/metadata/uid");
        kubectl.run(&format!("delete {pod} --timeout=90s")).ok();
        eventually("another mirror Pod", || kubectl.get(&pod).is_some_and(|p| p["metadata"]["uid"] != uid));
        kubectl.wait_value(&pod, "/status/phase", &json!(phase));
        assert_eq!(kubectl.value(&pod, "/status/containerStatuses/0/containerID"), id, "{name}");
        node.remove(&format!("{name}.json"));
        kubectl.run(&format!("wait --for=delete --timeout=90s {pod}")).ok();
    }
}

#[e2e_test("a manifest that refers to API objects is refused and logged")]
fn manifest_with_api_references_is_refused() {
    let mut secret = manifest("secret", "Always", "sleep 1000");
    secret["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    let node = Node::new(&[("secret.json", secret), ("good.json", manifest("good", "Always", &forever("here")))]);
    let kubectl = node.kubectl();
    running(&kubectl, "pod/good-node-1");
    assert!(kubectl.get("pod/secret-node-1").is_none());
    let log = node.cluster.log();
    assert!(log.contains("static pods may not reference secrets") && log.contains("secret.json"), "{log}");
}
