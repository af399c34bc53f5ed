//! Eviction by NoExecute taints and tolerationSeconds.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test};

fn apply(kubectl: &Kubectl, name: &str, toleration: Option<Value>) {
    let tolerations: Vec<Value> = toleration.into_iter().collect();
    let pod = PodBuilder::new(name)
        .metadata(&json!({"finalizers": ["example.com/look"]}))
        .grace_period(1)
        .command(&["sleep", "3600"])
        .spec(&json!({"tolerations": tolerations}));
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready(name);
}

#[e2e_test("a NoExecute taint evicts Pods at once or after tolerationSeconds")]
fn no_execute_taint_evicts_pods() {
    let cluster = Cluster::start(&["--node-name", "node-1"]);
    let kubectl = cluster.kubectl_in("default");
    let toleration = |seconds: Value| json!({"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    apply(&kubectl, "goes", None);
    apply(&kubectl, "goes-later", Some(toleration(json!(5))));
    apply(&kubectl, "stays", Some(toleration(Value::Null)));
    let since = Instant::now();
    kubectl.run("taint node node-1 broken=yes:NoExecute").ok();
    kubectl.wait_value("pod/goes", "/status/phase", &json!("Failed"));
    let conditions = kubectl.value("pod/goes", "/status/conditions");
    let target = conditions.as_array().unwrap().iter().find(|c| c["type"] == "DisruptionTarget").unwrap().clone();
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("DeletionByTaintManager")));
    assert!(target["observedGeneration"].is_number(), "{target}");
    assert_eq!(target["message"], json!("Taint manager: deleting due to NoExecute taint"));
    kubectl.wait_for_event("goes", "TaintManagerEviction", "Marking for deletion Pod default/goes");
    kubectl.wait_value("pod/goes-later", "/status/phase", &json!("Failed"));
    assert!(since.elapsed() > Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(kubectl.value("pod/stays", "/status/phase"), "Running");
    assert_eq!(kubectl.value("pod/stays", "/metadata/deletionTimestamp"), Value::Null);
}
