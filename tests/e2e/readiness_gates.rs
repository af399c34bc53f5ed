//! Readiness gates: conditions that other clients write.

use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, wait_for};

/// Returns status, reason and message of a condition, and its lastTransitionTime.
fn condition(kubectl: &Kubectl, kind: &str) -> ([Value; 3], Value) {
    let found = kubectl.condition("pod/p", kind);
    (["status", "reason", "message"].map(|field| found[field].clone()), found["lastTransitionTime"].clone())
}

#[e2e_test("readiness gates make a Pod ready once all of them are True")]
fn pod_is_ready_once_all_readiness_gates_are_true(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let gates = ["www.example.com/one", "www.example.com/two"];
    let pod = PodBuilder::new("p")
        .grace_period(1)
        .command(&["sleep", "100000"])
        .spec(&json!({"readinessGates": gates.map(|gate| json!({"conditionType": gate}))}));
    kubectl.apply(&pod.to_string());
    kubectl.run("wait --for=condition=ContainersReady --timeout=60s pod/p").ok();
    assert_eq!(condition(&kubectl, "ContainersReady").0, [json!("True"), Value::Null, Value::Null]);
    let missing =
        gates.map(|g| format!("corresponding condition of pod readiness gate {g:?} does not exist.")).join(", ");
    let not_ready = |words: &str| [json!("False"), json!("ReadinessGatesNotReady"), json!(words)];
    let (before, since) = condition(&kubectl, "Ready");
    assert_eq!(before, not_ready(&missing));
    let write = |gate: &str, status: &str| {
        let patch = json!({"status": {"conditions": [{"type": gate, "status": status}]}});
        kubectl.args(&["patch", "pod", "p", "--subresource=status", "-p", &patch.to_string()], "").ok();
    };
    write(gates[0], "True");
    write(gates[1], "False");
    let words = format!("the status of pod readiness gate {:?} is not \"True\", but False", gates[1]);
    let expected = (not_ready(&words), since);
    wait_for("Ready to name the missing conditions", Duration::from_secs(30), || {
        let ready = condition(&kubectl, "Ready");
        if ready == expected { Ok(()) } else { Err(format!("{ready:?}")) }
    });
    let row = kubectl.run("get pod p -o wide --no-headers").ok();
    assert_eq!(row.split_whitespace().last(), Some("1/2"), "{row}");
    write(gates[1], "True");
    kubectl.wait_ready("p");
    assert_eq!(condition(&kubectl, "Ready").0, [json!("True"), Value::Null, Value::Null]);
    // Conditions of other clients are kept beside those of the kubelet.
    write(gates[0], "Unknown");
    kubectl.run("wait --for=condition=Ready=False --timeout=60s pod/p").ok();
    assert_eq!(condition(&kubectl, gates[1]).0[0], "True");
}
