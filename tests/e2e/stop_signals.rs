//! Stop signals of images and Pods (KEP-4960). The exit code tells which signal arrived.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test};

const GATE: [&str; 2] = ["--feature-gates", "ContainerStopSignals=true"];
/// An image with a `STOPSIGNAL`.
const WITH_SIGNAL: &str = "docker.io/library/stop-signal:1";
/// Script that exits with a code per signal.
const TRAPS: &str = "trap 'exit 3' TERM; trap 'exit 4' USR1; trap 'exit 5' USR2; trap 'exit 6' 37; touch /ready; while :; do sleep 0.05; done";

fn cluster(args: &[&str]) -> Cluster {
    let cluster = Cluster::start(args);
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("image.tar");
    let config = test_images::ImageConfig { stop_signal: Some("SIGUSR2".to_owned()), ..Default::default() };
    test_images::busybox(&tar, &[WITH_SIGNAL], &config).unwrap();
    cluster.import(&tar);
    cluster
}

/// Returns a Pod with a finalizer, which keeps the object until its end has been checked.
fn pod(name: &str, image: &str, signal: Option<&str>, script: &str) -> PodBuilder {
    let ready = json!({"exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 1});
    let pod = PodBuilder::new(name)
        .metadata(&json!({"finalizers": ["example.com/look"]}))
        .spec(&json!({"os": {"name": "linux"}}))
        .restart_policy("Never")
        .image(image)
        .script(script)
        .container(&json!({"readinessProbe": ready}));
    match signal {
        Some(signal) => pod.container(&json!({"lifecycle": {"stopSignal": signal}})),
        None => pod,
    }
}

fn start(kubectl: &Kubectl, name: &str, image: &str, signal: Option<&str>, script: &str) {
    kubectl.apply(&pod(name, image, signal, script).to_string());
    kubectl.wait_ready(name);
}

/// Returns the exit code, and the stop signal in the status.
fn end(kubectl: &Kubectl, name: &str) -> (Value, Value) {
    let shown = kubectl.value(&format!("pod/{name}"), "/status/containerStatuses/0/stopSignal");
    kubectl.run(&format!("delete pod {name} --wait=false")).ok();
    (remove_finalizer(kubectl, name), shown)
}

fn remove_finalizer(kubectl: &Kubectl, name: &str) -> Value {
    let pod = format!("pod/{name}");
    kubectl.wait_value(&pod, "/status/phase", &json!("Failed"));
    let code = kubectl.value(&pod, "/status/containerStatuses/0/state/terminated/exitCode");
    kubectl.run(&format!("patch {pod} --type=merge -p {{\"metadata\":{{\"finalizers\":null}}}}")).ok();
    kubectl.run(&format!("wait --for=delete --timeout=90s {pod}")).ok();
    code
}

#[e2e_test("stopSignal of the Pod overrides that of its image")]
fn pod_stop_signal_overrides_image() {
    let cluster = cluster(&GATE);
    let kubectl = cluster.kubectl_in("default");
    let cases = [
        ("plain", test_images::BUSYBOX, None, 3, "SIGTERM"),
        ("image", WITH_SIGNAL, None, 5, "SIGUSR2"),
        ("spec", test_images::BUSYBOX, Some("SIGUSR1"), 4, "SIGUSR1"),
        ("both", WITH_SIGNAL, Some("SIGTERM"), 3, "SIGTERM"),
        ("real-time", test_images::BUSYBOX, Some("SIGRTMIN+3"), 6, "SIGRTMIN+3"),
    ];
    for (name, image, signal, code, shown) in cases {
        start(&kubectl, name, image, signal, TRAPS);
        assert_eq!(end(&kubectl, name), (json!(code), json!(shown)), "{name}");
    }
}

#[e2e_test("an ignored stop signal is sent once and followed by SIGKILL")]
fn ignored_stop_signal_is_followed_by_sigkill() {
    let cluster = cluster(&GATE);
    let kubectl = cluster.kubectl_in("default");
    let script = "trap 'echo signal' USR1; trap 'exit 3' TERM; touch /ready; while :; do sleep 0.05; done";
    start(&kubectl, "p", test_images::BUSYBOX, Some("SIGUSR1"), script);
    kubectl.run("delete pod p --wait=false --grace-period=600").ok();
    tests::eventually("the signal to arrive", || kubectl.run("logs p").is_ok_and(|output| output.contains("signal")));
    // A shorter grace period takes effect at once, and sends no second signal.
    kubectl.run("delete pod p --wait=false --grace-period=2").ok();
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    assert_eq!(kubectl.run("logs p").ok().lines().filter(|l| *l == "signal").count(), 1);
    assert_eq!(remove_finalizer(&kubectl, "p"), json!(137));
}

#[e2e_test("without its feature gate stopSignal is dropped")]
fn stop_signal_is_dropped_without_feature_gate() {
    let cluster = cluster(&[]);
    let kubectl = cluster.kubectl_in("default");
    start(&kubectl, "p", WITH_SIGNAL, Some("SIGUSR1"), TRAPS);
    let lifecycle = kubectl.run("get pod p -o jsonpath={.spec.containers[0].lifecycle}").ok();
    assert_eq!(lifecycle, "", "it was dropped");
    let shown = kubectl.run("get pod p -o jsonpath={.status.containerStatuses[0].stopSignal}").ok();
    assert_eq!(shown, "");
    kubectl.run("delete pod p --wait=false").ok();
    assert_eq!(remove_finalizer(&kubectl, "p"), json!(5));
}
