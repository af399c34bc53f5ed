//! The storage quota: a client that fills the store.

use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, wait_for};

const LIMIT: Duration = Duration::from_secs(90);
/// Quota in bytes. A new cluster needs about 400 kB.
const QUOTA: &str = "4000000";

fn create(kubectl: &Kubectl, name: &str) -> tests::Outcome {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"k": "x".repeat(200_000)}});
    kubectl.args(&["create", "-f", "-"], &map.to_string())
}

/// Waits until a value of an object changes.
fn wait_for_change(kubectl: &Kubectl, object: &str, pointer: &str) {
    let before = kubectl.value(object, pointer);
    wait_for(&format!("{pointer} of {object} to change"), LIMIT, || match kubectl.value(object, pointer) {
        now if now == before => Err(now.to_string()),
        _ => Ok(()),
    });
}

#[e2e_test("a full store refuses clients, keeps the node running and recovers")]
fn full_store_refuses_writes_and_recovers() {
    let cluster = Cluster::start(&["--node-name", "n", "--quota-backend-bytes", QUOTA]);
    let kubectl = cluster.kubectl_in("default");
    let pod = PodBuilder::new("p")
        .restart_policy("Never")
        .grace_period(1)
        .script("trap 'exit 3' TERM; while :; do sleep 0.1; [ -e /end ] && exit 7; done");
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    let count = (0..100).take_while(|number| create(&kubectl, &format!("m{number}")).code == 0).count();
    assert!((5..20).contains(&count), "{count} ConfigMaps of 200 kB were stored");
    let refused = create(&kubectl, "refused").failed();
    assert!(refused.contains("etcdserver: mvcc: database space exceeded"), "{refused}");
    let readyz = kubectl.run("get --raw /readyz");
    assert!(readyz.code != 0 && kubectl.run("get --raw /livez").ok() == "ok", "{readyz:?}");
    let has_event = |reason: &str| {
        wait_for(&format!("the Event {reason}"), LIMIT, || {
            let events = kubectl.events("n");
            if events.iter().any(|(found, _)| found == reason) { Ok(()) } else { Err(format!("{events:?}")) }
        });
    };
    has_event("StoreQuotaExceeded");
    // The node still updates its Lease and the status of its Pods.
    let node = cluster.kubectl_in("kube-node-lease");
    wait_for_change(&node, "lease/n", "/spec/renewTime");
    kubectl.run("exec p -- touch /end").ok();
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    let exit_code = kubectl.value("pod/p", "/status/containerStatuses/0/state/terminated/exitCode");
    assert_eq!(exit_code, json!(7));
    kubectl.run("delete pod/p --timeout=60s").ok();
    assert_eq!(kubectl.get("pod/p"), None::<Value>);
    kubectl.run("delete configmap m0 m1 m2").ok();
    assert_eq!(kubectl.run("get --raw /readyz").ok(), "ok");
    create(&kubectl, "after").ok();
    has_event("StoreQuotaRecovered");
}
