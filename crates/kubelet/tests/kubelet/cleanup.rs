//! Deleted Pods leave nothing behind, in memory and on disk.

use super::{Node, path};
use crate::fake_runtime::IMAGE;
use serde_json::{Value, json};
use std::time::Duration;

/// Returns the remaining state of Pods in memory and on disk.
fn left(node: &Node) -> Vec<String> {
    let cache_sizes = node.kubelet.as_ref().expect("it runs").cache_sizes();
    let mut left: Vec<String> =
        cache_sizes.into_iter().filter(|(_, n)| *n > 0).map(|(cache, n)| format!("{n} {cache}")).collect();
    for dir in ["pods", "checkpoints", "logs"] {
        let entries = std::fs::read_dir(node.dir.path().join(dir)).into_iter().flatten().flatten();
        left.extend(entries.map(|entry| format!("{dir}/{}", entry.file_name().display())));
    }
    left
}

#[tokio::test(start_paused = true)]
async fn deleted_pods_leave_no_state() {
    let mut node = Node::new("maxPods: 60");
    let manifests = node.dir.path().join("manifests");
    std::fs::create_dir(&manifests).expect("a directory");
    node.config.static_pod_path = Some(manifests.clone());
    node.start();
    node.api.put("api/v1/namespaces/x/configmaps/cm", json!({"data": {"k": "v"}}));
    let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}});
    let volumes = json!([{"name": "all", "projected": {"sources": [token, {"configMap": {"name": "cm"}}]}}]);
    let mounts = json!([{"name": "all", "mountPath": "/all"}]);
    let missing = json!([{"name": "none", "configMap": {"name": "none"}}]);
    let kinds: [(&str, Value, &str); 6] = [
        ("runs", json!({"volumes": volumes, "container": {"volumeMounts": mounts}}), "Running"),
        ("ends", json!({"restartPolicy": "Never"}), "Failed"),
        ("crashes", json!({}), "Running"),
        ("refused", json!({"nodeSelector": {"no": "node"}}), "Failed"),
        ("unmounted", json!({"volumes": missing}), "Pending"),
        ("imageless", json!({"container": {"image": "none:1"}}), "Pending"),
    ];
    for round in 0..5 {
        for (kind, spec, _) in &kinds {
            node.pod(&format!("{kind}-{round}"), spec);
        }
        std::fs::write(manifests.join("static.json"), static_pod(round)).expect("a file");
        for name in ["ends", "crashes"].map(|kind| format!("{kind}-{round}")) {
            node.until_running(&name).await;
            node.runtime.exit(&name, 1, true);
        }
        for (kind, _, phase) in &kinds {
            node.until_status(&format!("{kind}-{round}"), phase, |s| s["phase"] == **phase).await;
        }
    }
    assert!(left(&node).len() > 30, "{:?}", left(&node));
    std::fs::remove_file(manifests.join("static.json")).expect("a file");
    for (kind, round) in kinds.iter().flat_map(|(kind, ..)| (0..5).map(move |round| (kind, round))) {
        let path = path(&format!("{kind}-{round}"));
        // Some Pods are force-deleted.
        if round % 2 == 0 { node.api.delete(&path) } else { node.api.remove(&path) }
    }
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if left(&node).is_empty() {
            break;
        }
    }
    assert_eq!(left(&node), [""; 0]);
    assert!(node.runtime.sandbox_configs().is_empty());
}

fn static_pod(round: u32) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "annotations": {"round": round.to_string()}},
        "spec": {"containers": [{"name": "c", "image": IMAGE}]}})
    .to_string()
}
