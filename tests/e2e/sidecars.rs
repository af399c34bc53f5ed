//! Sidecar containers: init containers with `restartPolicy: Always` (KEP-753).

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

fn container(name: &str, script: &str) -> Value {
    let mut container = tests::container(name, script);
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    container
}

fn sidecar(name: &str, script: &str) -> Value {
    let mut sidecar = container(name, script);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

fn apply(kubectl: &Kubectl, init: &[Value], main: &Value) {
    let pod = PodBuilder::new("p")
        .restart_policy("Never")
        .grace_period(20)
        .volume("v", &json!({"emptyDir": {}}))
        .spec(&json!({"initContainers": init}))
        .container(main);
    kubectl.apply(&pod.to_string());
}

/// Returns a script that exits at SIGTERM and logs it.
fn serving(name: &str) -> String {
    format!("trap 'echo {name} ended >> /v/log; exit 0' TERM; echo {name} began >> /v/log; while :; do sleep 0.1; done")
}

#[e2e_test("a sidecar starts before later containers and does not keep the Pod alive")]
fn sidecar_starts_first_and_does_not_keep_pod_alive(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let init = [sidecar("s", &serving("s")), container("i", "echo i >> /v/log")];
    apply(&kubectl, &init, &container("c", "cat /v/log; until [ -e /v/go ]; do sleep 0.1; done"));
    kubectl.wait_ready("p");
    let row = kubectl.run("get pod p --no-headers").ok();
    assert_eq!(row.split_whitespace().take(3).collect::<Vec<_>>(), ["p", "2/2", "Running"], "{row}");
    kubectl.run("exec p -c s -- touch /v/go").ok();
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs p -c c").ok(), "s began\ni\n");
    let s = kubectl.value("pod/p", "/status/initContainerStatuses/0");
    assert_eq!((&s["name"], &s["state"]["terminated"]["exitCode"]), (&json!("s"), &json!(0)));
}

#[e2e_test("a sidecar that exits is restarted, even under Never")]
fn exited_sidecar_is_restarted_under_never(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    apply(&kubectl, &[sidecar("s", "echo again; sleep 1; exit 3")], &container("c", "sleep 100000"));
    kubectl.wait_value("pod/p", "/status/initContainerStatuses/0/restartCount", &json!(2));
    assert_eq!(kubectl.value("pod/p", "/status/phase"), "Running");
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/restartCount"), json!(0));
    kubectl.run("delete pod p --now").ok();
}

#[e2e_test("sidecars end after the main containers, in reverse order")]
fn sidecars_end_in_reverse_order(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // The container that exits last prints the shared log.
    let first = "trap 'echo one ended >> /v/log; cat /v/log; exit 0' TERM; echo one began >> /v/log; echo up; while :; do sleep 0.1; done";
    apply(&kubectl, &[sidecar("one", first), sidecar("two", &serving("two"))], &container("c", &serving("c")));
    kubectl.wait_ready("p");
    let logs = kubectl.follow(&["logs", "--follow", "p", "-c", "one"]);
    eventually("the traps to be set", || kubectl.run("exec p -c one -- grep c.began /v/log").code == 0);
    kubectl.run("delete pod p --timeout=60s").ok();
    assert_eq!(logs.until_end(), ["up", "one began", "two began", "c began", "c ended", "two ended", "one ended"]);
}

#[e2e_test("sidecars get their stop signal when the grace period is over")]
fn sidecars_are_signaled_after_grace_period(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let last_words = "trap 'echo ended; exit 0' TERM; echo began; while :; do sleep 0.1; done";
    apply(&kubectl, &[sidecar("s", last_words)], &container("c", "trap '' TERM; while :; do sleep 1; done"));
    kubectl.wait_ready("p");
    let logs = kubectl.follow(&["logs", "--follow", "p", "-c", "s"]);
    let began = std::time::Instant::now();
    kubectl.run("delete pod p --grace-period=3 --timeout=60s").ok();
    assert!(began.elapsed() > std::time::Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(logs.until_end(), ["began", "ended"]);
}
