//! Mutable fields of running Pods.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test};

fn run(kubectl: &Kubectl) {
    let pod = PodBuilder::new("p")
        .metadata(&json!({"finalizers": ["example.com/first"]}))
        .grace_period(0)
        .command(&["sleep", "100000"]);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
}

/// Checks that a merge patch is accepted, or refused with this message.
#[track_caller]
fn check(kubectl: &Kubectl, patch: &Value, expected: Result<(), &str>) {
    let outcome = kubectl.args(&["patch", "pod", "p", "--type=merge", "-p", &patch.to_string()], "");
    match expected {
        Ok(()) => drop(outcome.ok()),
        Err(words) => {
            let output = outcome.failed();
            assert!(output.contains(words), "{output}");
        }
    }
}

#[e2e_test("tolerations can be added to a running Pod but not removed")]
fn tolerations_can_be_added_but_not_removed(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl);
    let before = kubectl.value("pod/p", "/spec/tolerations");
    let mut extended = before.as_array().cloned().unwrap_or_default();
    extended.push(json!({"key": "example.com/own", "operator": "Exists", "effect": "NoExecute"}));
    check(&kubectl, &json!({"spec": {"tolerations": extended}}), Ok(()));
    assert_eq!(kubectl.value("pod/p", "/spec/tolerations"), json!(extended));
    let words = "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds";
    extended.last_mut().unwrap()["key"] = json!("example.com/other");
    check(&kubectl, &json!({"spec": {"tolerations": extended}}), Err(words));
    extended.pop();
    check(&kubectl, &json!({"spec": {"tolerations": extended}}), Err(words));
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/restartCount"), json!(0));
}

#[e2e_test("activeDeadlineSeconds of a running Pod can be set and shortened")]
fn active_deadline_can_be_set_and_shortened(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl);
    let deadline = |seconds: i64| json!({"spec": {"activeDeadlineSeconds": seconds}});
    check(&kubectl, &deadline(3600), Ok(()));
    let words = "spec.activeDeadlineSeconds: Invalid value: 7200: must be less than or equal to previous value";
    check(&kubectl, &deadline(7200), Err(words));
    check(&kubectl, &deadline(1800), Ok(()));
    assert_eq!(kubectl.value("pod/p", "/status/phase"), json!("Running"));
    check(&kubectl, &deadline(1), Ok(()));
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    assert_eq!(kubectl.value("pod/p", "/status/reason"), json!("DeadlineExceeded"));
}

#[e2e_test("a terminating Pod accepts no new finalizer")]
fn terminating_pod_accepts_no_new_finalizer(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl);
    kubectl.run("delete pod p --wait=false").ok();
    let finalizers = |all: &[&str]| json!({"metadata": {"finalizers": all}});
    let words = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/second\"}";
    check(&kubectl, &finalizers(&["example.com/first", "example.com/second"]), Err(words));
    check(&kubectl, &finalizers(&[]), Ok(()));
    kubectl.run("wait --for=delete pod/p --timeout=60s").ok();
}
