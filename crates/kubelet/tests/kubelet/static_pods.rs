//! Static Pods and their mirror Pods.

use super::{FakeApi, IMAGE, Node};
use serde_json::{Value, json};
use std::{path::PathBuf, time::Duration};
use tokio::time::Instant;

const MIRROR: &str = "api/v1/namespaces/default/pods/web-n";

/// Returns a node with a manifest directory, whose kubelet is not started.
fn node() -> (Node, PathBuf) {
    let mut node = Node::new("");
    let manifests = node.dir.path().join("manifests");
    std::fs::create_dir(&manifests).expect("a directory");
    node.config.static_pod_path = Some(manifests.clone());
    (node, manifests.join("web.json"))
}

fn manifest(word: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", "image": IMAGE, "args": [word]}]}})
    .to_string()
}

fn mirror(api: &FakeApi) -> Value {
    api.get(MIRROR).unwrap_or_default()
}

async fn until_running(node: &Node) {
    node.api.wait_until("the mirror shows that it runs", |api| mirror(api)["status"]["phase"] == "Running").await;
}

/// Returns a node with a running static Pod.
async fn running() -> (Node, PathBuf) {
    let (mut node, file) = node();
    std::fs::write(&file, manifest("one")).expect("a file");
    node.start();
    until_running(&node).await;
    (node, file)
}

#[tokio::test(start_paused = true)]
async fn static_pod_runs_independently_of_its_mirror_pod() {
    let (mut node, _) = running().await;
    let first = mirror(&node.api);
    let hash = &first["metadata"]["annotations"]["kubernetes.io/config.hash"];
    assert_eq!((&first["metadata"]["annotations"]["kubernetes.io/config.mirror"], hash.is_string()), (hash, true));
    // Deleting the mirror Pod does not affect the static Pod.
    node.api.delete(MIRROR);
    node.api.wait_until("the mirror is gone", |api| api.get(MIRROR).is_none()).await;
    until_running(&node).await;
    assert_eq!(node.runtime.made("c").len(), 1);
    // The next kubelet keeps it running.
    node.stop().await;
    node.start();
    until_running(&node).await;
    assert_eq!(node.runtime.made("c").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn changed_manifest_is_a_new_pod_and_removal_ends_it() {
    let (node, file) = running().await;
    let first = node.runtime.sandbox_configs();
    std::fs::write(&file, manifest("two")).expect("a file");
    let args = |node: &Node| node.runtime.made("c").into_iter().map(|c| c.args.concat()).collect::<Vec<_>>();
    node.api.wait_until("the new one runs, and nothing is left of the other", |_| args(&node) == ["two"]).await;
    until_running(&node).await;
    let second = node.runtime.sandbox_configs();
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].uid, second[0].uid);
    std::fs::remove_file(&file).expect("a file");
    node.api
        .wait_until("all is gone", |api| node.runtime.sandbox_configs().is_empty() && api.get(MIRROR).is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn recreated_manifest_starts_a_new_pod() {
    let (node, file) = running().await;
    let first = node.runtime.sandbox_configs();
    std::fs::remove_file(&file).expect("a file");
    node.api
        .wait_until("its mirror tells of the end", |api| {
            mirror(api)["metadata"]["deletionTimestamp"].is_string() || mirror(api).is_null()
        })
        .await;
    std::fs::write(&file, manifest("one")).expect("a file");
    node.api
        .wait_until("it runs again", |api| {
            node.runtime.starts().len() == 2 && mirror(api)["status"]["phase"] == "Running"
        })
        .await;
    let second = node.runtime.sandbox_configs();
    assert!(second.iter().all(|s| s.attempt == 0 && s.uid == first[0].uid), "{second:?}");
    assert_eq!(mirror(&node.api)["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[tokio::test(start_paused = true)]
async fn failing_mirror_pod_does_not_delay_others() {
    let (mut node, file) = node();
    std::fs::write(&file, manifest("one")).expect("a file");
    let mut other: Value = serde_json::from_str(&manifest("two")).expect("a manifest");
    other["metadata"] = json!({"name": "lost", "namespace": "nope"});
    std::fs::write(file.with_file_name("lost.json"), other.to_string()).expect("a file");
    let creation = "POST api/v1/namespaces/nope/pods";
    (0..1000).for_each(|_| node.api.refuse_next(creation, 404));
    node.start();
    until_running(&node).await;
    // The back-off of the other mirror Pod has reached its maximum.
    tokio::time::sleep(Duration::from_secs(60)).await;
    node.api.delete(MIRROR);
    node.api.wait_until("the mirror is gone", |api| api.get(MIRROR).is_none()).await;
    let gone = Instant::now();
    until_running(&node).await;
    assert!(gone.elapsed() < Duration::from_secs(2), "{:?}", gone.elapsed());
    let tries = 1000 - node.api.refusals(creation);
    assert!((6..20).contains(&tries), "it is tried again, and not too often: {tries}");
}
