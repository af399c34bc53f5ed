//! A kubelet without its checkpoints restores its Pods from their status in the API and from the runtime.

use crate::crash_recovery::counting;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, time::Duration};
use tests::{Cluster, Kubectl, e2e_test};

/// Number of starts of each Pod's container at the end of the test.
const STARTS: [(&str, usize); 4] = [("succeeded", 1), ("failed", 1), ("running", 2), ("back-off", 3)];

/// Creates the Pods and waits until two have ended, one runs after a failure, and one is in back-off after two failures.
fn create_pods(kubectl: &Kubectl, dir: &Path) {
    let create = |name, policy, script: &str| kubectl.apply(&counting(dir, name, policy, script).to_string());
    // The first run exits with code 11, the second one with code 12.
    let serve_after = |failures: u32| {
        let serve = "trap 'exit 0' TERM; sleep 100000 & wait";
        format!("n=$(wc -l < /v/starts); [ $n -gt {failures} ] || exit $((10 + n)); {serve}")
    };
    create("succeeded", "Never", "exit 0");
    create("failed", "Never", "exit 7");
    create("running", "Always", &serve_after(1));
    kubectl.wait_value("pod/succeeded", "/status/phase", &json!("Succeeded"));
    kubectl.wait_value("pod/failed", "/status/phase", &json!("Failed"));
    kubectl.wait_value("pod/running", "/status/containerStatuses/0/restartCount", &json!(1));
    kubectl.wait_ready("running");
    // It is the last one, because its back-off ends after 10 s.
    create("back-off", "Always", &serve_after(2));
    kubectl.wait_value("pod/back-off", "/status/containerStatuses/0/lastState/terminated/exitCode", &json!(12));
}

/// Removes the checkpoints, and returns their number. The kill may have left an incomplete file beside them.
fn remove_checkpoints(data_dir: &Path) -> usize {
    let files = std::fs::read_dir(data_dir.join("kubelet/checkpoints")).unwrap().map(|file| file.unwrap().path());
    let checkpoints = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    checkpoints.map(|path| std::fs::remove_file(path).unwrap()).count()
}

/// Returns the status of each Pod, and the revision of the list.
async fn statuses(pods: &Api<Pod>) -> (BTreeMap<String, Value>, u64) {
    let list = pods.list(&ListParams::default()).await.unwrap();
    let revision = list.metadata.resource_version.unwrap().parse().unwrap();
    (list.items.into_iter().map(named_status).collect(), revision)
}

fn named_status(pod: Pod) -> (String, Value) {
    (pod.metadata.name.unwrap(), json!(pod.status))
}

/// Checks a status that was published after the restart.
#[track_caller]
fn check(name: &str, before: &Value, status: &Value) {
    for field in ["phase", "startTime", "podIP"] {
        assert_eq!(status[field], before[field], "{name} {field}: {status}");
    }
    let (old, new) = (&before["containerStatuses"][0], &status["containerStatuses"][0]);
    if name != "back-off" {
        assert_eq!(new, old, "{name}: {status}");
        return;
    }
    let (exit, last) = (&old["lastState"]["terminated"], &new["lastState"]["terminated"]);
    if &new["state"]["terminated"] == exit {
        // A back-off is lost with the checkpoint, so the last exit is the state until the restart.
        assert_eq!(last["exitCode"], 11, "{name}: {status}");
    } else {
        assert_eq!(last, exit, "{name}: {status}");
    }
    let restarts = if new["containerID"] == old["containerID"] { 1 } else { 2 };
    assert_eq!(new["restartCount"], restarts, "{name}: {status}");
}

/// Checks each status that is published after a revision, until the container in back-off has been restarted.
async fn watch_restart(pods: &Api<Pod>, mut from: u64, before: &BTreeMap<String, Value>) {
    let mut events = pods.watch(&WatchParams::default(), &from.to_string()).await.unwrap().boxed();
    while let Some(event) = events.next().await {
        match event.unwrap() {
            WatchEvent::Modified(pod) => {
                let (name, status) = named_status(pod);
                check(&name, &before[&name], &status);
                if name == "back-off" && status["containerStatuses"][0]["state"]["running"].is_object() {
                    return;
                }
            }
            WatchEvent::Bookmark(_) => {}
            // A restarted store knows no events before its last revision. It is later than that of the list if there was
            // a write before the kill.
            WatchEvent::Error(status) if status.code == 410 => {
                from += 1;
                events = pods.watch(&WatchParams::default(), &from.to_string()).await.unwrap().boxed();
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the watch ended");
}

#[e2e_test("a kubelet without its checkpoints keeps restart counts, exits and phases")]
fn lost_checkpoints_change_no_published_status() {
    let (dir, mut cluster) = (tempfile::tempdir().unwrap(), Cluster::start(&[]));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    create_pods(&cluster.kubectl_in("default"), dir.path());
    let (before, from) = runtime.block_on(statuses(&Api::default_namespaced(cluster.client(&runtime))));
    cluster.stop_podium(Signal::SIGKILL);
    let container = &before["back-off"]["containerStatuses"][0];
    let state = (&container["state"]["waiting"]["reason"], &container["restartCount"]);
    assert_eq!(state, (&json!("CrashLoopBackOff"), &json!(1)));
    assert_eq!(remove_checkpoints(&cluster.data_dir()), STARTS.len());

    cluster.start_api();
    let pods = Api::default_namespaced(cluster.client(&runtime));
    let restart = async { tokio::time::timeout(Duration::from_secs(60), watch_restart(&pods, from, &before)).await };
    runtime.block_on(restart).expect("the container in back-off is restarted");
    let (after, _) = runtime.block_on(statuses(&pods));
    assert_eq!(after["back-off"]["containerStatuses"][0]["restartCount"], 2);
    for (name, starts) in STARTS {
        check(name, &before[name], &after[name]);
        let log = std::fs::read_to_string(dir.path().join(name).join("starts")).unwrap();
        assert_eq!(log.lines().count(), starts, "starts of {name}");
    }
}
