//! The "Example states" of the Pod lifecycle document (2018 edition), each on real containers.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test};

/// Expected result of a row of the document.
enum Expect {
    /// The container is restarted; the phase stays Running.
    Restarts,
    /// No restart; the phase becomes this one and stays.
    Phase(&'static str),
}

fn pod(policy: &str, containers: &[(&str, &str)]) -> PodBuilder {
    let container = |(name, script): &(&str, &str)| {
        let mut container = tests::container(name, script);
        container["resources"] = json!({});
        container
    };
    let containers: Vec<Value> = containers.iter().map(container).collect();
    PodBuilder::new(&format!("p-{}", policy.to_lowercase()))
        .restart_policy(policy)
        .grace_period(1)
        .spec(&json!({"containers": containers}))
}

/// Applies one Pod per restart policy and checks that container `watched` does what the row says.
#[track_caller]
fn check(cluster: &Cluster, containers: &[(&str, &str)], watched: &str, rows: [(&str, Expect); 3]) {
    let kubectl = cluster.kubectl();
    for (policy, _) in &rows {
        kubectl.apply(&pod(policy, containers).to_string());
    }
    for (policy, expected) in &rows {
        let object = format!("pod/p-{}", policy.to_lowercase());
        match expected {
            Expect::Restarts => {
                tests::wait_for(
                    &format!("{policy}: a restart of {watched}"),
                    std::time::Duration::from_secs(60),
                    || {
                        let status = container_status(&kubectl, &object, watched);
                        if status["restartCount"].as_i64() >= Some(1) { Ok(()) } else { Err(status.to_string()) }
                    },
                );
                // Until every container has begun once it is Pending.
                kubectl.wait_value(&object, "/status/phase", &json!("Running"));
            }
            Expect::Phase(phase) => {
                kubectl.wait_value(&object, "/status/phase", &json!(phase));
                assert_eq!(container_status(&kubectl, &object, watched)["restartCount"], 0, "{policy}");
            }
        }
    }
    kubectl.run("delete pods --all --wait=false").ok();
}

fn container_status(kubectl: &Kubectl, object: &str, container: &str) -> Value {
    let statuses = kubectl.value(object, "/status/containerStatuses");
    statuses.as_array().into_iter().flatten().find(|s| s["name"] == container).cloned().unwrap_or(Value::Null)
}

#[e2e_test("one container exits with success")]
fn single_container_success_follows_restart_policy(cluster: &Cluster) {
    let rows = [
        ("Always", Expect::Restarts),
        ("OnFailure", Expect::Phase("Succeeded")),
        ("Never", Expect::Phase("Succeeded")),
    ];
    check(cluster, &[("c", "exit 0")], "c", rows);
}

#[e2e_test("one container exits with failure")]
fn single_container_failure_follows_restart_policy(cluster: &Cluster) {
    let rows = [("Always", Expect::Restarts), ("OnFailure", Expect::Restarts), ("Never", Expect::Phase("Failed"))];
    check(cluster, &[("c", "exit 3")], "c", rows);
}

#[e2e_test("one of two containers exits with failure")]
fn one_of_two_failures_follows_restart_policy(cluster: &Cluster) {
    let rows = [("Always", Expect::Restarts), ("OnFailure", Expect::Restarts), ("Never", Expect::Phase("Running"))];
    check(cluster, &[("one", "exit 3"), ("two", "sleep 1000")], "one", rows);
}

#[e2e_test("both containers exit, one with failure")]
fn both_exits_follow_restart_policy(cluster: &Cluster) {
    let rows = [("Always", Expect::Restarts), ("OnFailure", Expect::Restarts), ("Never", Expect::Phase("Failed"))];
    check(cluster, &[("one", "exit 3"), ("two", "sleep 1")], "one", rows);
}

#[e2e_test("a container runs out of memory")]
fn oom_kill_follows_restart_policy(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let eat = "x=a; while :; do x=$x$x$x$x; done";
    for (policy, restarts) in [("Always", true), ("Never", false)] {
        let pod = pod(policy, &[("c", eat)]).resources(&json!({"limits": {"memory": "16Mi"}}));
        kubectl.apply(&pod.to_string());
        let object = format!("pod/p-{}", policy.to_lowercase());
        let pointer = if restarts {
            "/status/containerStatuses/0/lastState/terminated/reason"
        } else {
            "/status/containerStatuses/0/state/terminated/reason"
        };
        kubectl.wait_value(&object, pointer, &json!("OOMKilled"));
        let phase = if restarts { "Running" } else { "Failed" };
        kubectl.wait_value(&object, "/status/phase", &json!(phase));
    }
    kubectl.run("delete pods --all --wait=false").ok();
}
