//! Inter-pod affinity, anti-affinity and topology spread constraints.

use crate::workload;
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).label("app", name).grace_period(0).command(&["sleep", "100000"])
}

fn affinity_to(app: &str) -> Value {
    json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}])
}

fn wait_for_unschedulable(kubectl: &Kubectl, name: &str, text: &str) {
    let begins = format!("0/1 nodes are available: 1 {text}. ");
    eventually(&format!("{name} waits"), || {
        kubectl
            .events(name)
            .iter()
            .any(|(reason, message)| reason == "FailedScheduling" && message.starts_with(&begins))
    });
    assert_eq!(kubectl.value(&format!("pod/{name}"), "/status/phase"), "Pending");
}

#[e2e_test("required Pod affinity keeps a Pod Pending until a matching Pod runs")]
fn required_pod_affinity_keeps_pod_pending(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity_to("friend")}});
    kubectl.apply(&pod("p").spec(&json!({"affinity": affinity})).to_string());
    wait_for_unschedulable(&kubectl, "p", "node(s) didn't match pod affinity rules");
    kubectl.apply(&pod("friend").to_string());
    kubectl.wait_ready("p");
    kubectl.run("delete pods --all").ok();
}

#[e2e_test("Pod anti-affinity keeps a second Pod Pending until there is another node")]
fn pod_anti_affinity_keeps_pod_pending(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity_to("db")}});
    let spec = json!({"replicas": 2});
    let mut deployment = json!({"affinity": affinity, "terminationGracePeriodSeconds": 0});
    deployment["containers"] = json!([{"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]}]);
    let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": deployment});
    workload::apply(&kubectl, "Deployment", "db", &[&spec, &json!({"template": template})], &json!({}));
    kubectl.wait_value("deployment/db", "/status/readyReplicas", &json!(1));
    let pending =
        || kubectl.run("get pods --field-selector=status.phase=Pending -o jsonpath={.items[*].metadata.name}").ok();
    eventually("a Pending Pod", || !pending().is_empty());
    wait_for_unschedulable(&kubectl, &pending(), "node(s) didn't match pod anti-affinity rules");
    // The anti-affinity of a running Pod repels Pods without one.
    kubectl.apply(&pod("db").to_string());
    wait_for_unschedulable(&kubectl, "db", "node(s) didn't satisfy existing pods anti-affinity rules");
    kubectl.run("delete deployment db").ok();
    kubectl.wait_ready("db");
    kubectl.run("delete pods --all").ok();
}

#[e2e_test("topology spread constraints limit the skew between domains")]
fn topology_spread_limits_skew(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let constraint = |key: &str, min_domains: Option<i32>| {
        let constraint = json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "s"}}, "minDomains": min_domains});
        json!({"topologySpreadConstraints": [constraint]})
    };
    let hostname = "kubernetes.io/hostname";
    kubectl.apply(&pod("s").spec(&constraint(hostname, Some(2))).to_string());
    kubectl.wait_ready("s");
    let second = pod("second").label("app", "s").spec(&constraint(hostname, Some(2)));
    kubectl.apply(&second.to_string());
    wait_for_unschedulable(&kubectl, "second", "node(s) didn't match pod topology spread constraints");
    kubectl.apply(&pod("nowhere").spec(&constraint("example.com/rack", None)).to_string());
    let missing = "node(s) didn't match pod topology spread constraints (missing required label)";
    wait_for_unschedulable(&kubectl, "nowhere", missing);
    kubectl.run("delete pod s").ok();
    kubectl.wait_ready("second");
    kubectl.run("delete pods --all").ok();
}
