//! Image garbage collection by age and by disk usage.

use crate::image_pulls::{pod, printing};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tests::{Cluster, ClusterBuilder, Kubectl, e2e_test, wait_for};

fn import(cluster: &Cluster, name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("image.tar");
    test_images::busybox(&tar, &[&format!("example.com/{name}:1")], &printing(name)).unwrap();
    cluster.import(&tar);
}

/// Returns the test images on the node.
fn images(cluster: &Cluster) -> BTreeSet<String> {
    let output = cluster.podium(&["image", "ls"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|l| l.strip_prefix("example.com/")?.split_once(':'));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[track_caller]
fn wait_for_images(cluster: &Cluster, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    wait_for(&format!("only {expected:?} to be left"), Duration::from_secs(60), || match images(cluster) {
        left if left == expected => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

fn run(kubectl: &Kubectl, name: &str) {
    kubectl.apply(&pod(name, &format!("example.com/{name}:1"), "Never", &[]));
    kubectl.wait_ready(name);
}

#[e2e_test("images unused for imageMaximumGCAge are removed")]
fn images_unused_for_maximum_age_are_removed() {
    let kubelet = json!({"imageMinimumGCAge": "10s", "imageMaximumGCAge": "12s"});
    let cluster = ClusterBuilder::default().without_images().kubelet_config(kubelet).start();
    let kubectl = cluster.kubectl_in("default");
    for name in ["used", "brief", "idle"] {
        import(&cluster, name);
    }
    run(&kubectl, "used");
    run(&kubectl, "brief");
    // The garbage collection after the Pod's end also sees the image that was never used.
    kubectl.run("delete pod brief --timeout=90s").ok();
    wait_for_images(&cluster, &["used"]);
    kubectl.run("delete pod used --timeout=90s").ok();
    wait_for_images(&cluster, &[]);
}

/// Returns the messages of the node's Events with this reason.
fn event_messages(kubectl: &Kubectl, reason: &str) -> Vec<String> {
    let selector = format!("involvedObject.kind=Node,reason={reason}");
    let list = kubectl.args(&["get", "events", "-A", "--field-selector", &selector, "-o", "json"], "").ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|e| e["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[e2e_test("unused images are removed above imageGCHighThresholdPercent")]
fn unused_images_are_removed_above_high_threshold() {
    // Every disk exceeds this threshold and cannot get below it.
    let kubelet = json!({"imageGCHighThresholdPercent": 1, "imageGCLowThresholdPercent": 0, "imageMinimumGCAge": "1s"});
    let cluster = ClusterBuilder::default().without_images().kubelet_config(kubelet).start();
    let kubectl = cluster.kubectl_in("default");
    for name in ["used", "brief"] {
        import(&cluster, name);
        run(&kubectl, name);
    }
    import(&cluster, "idle");
    kubectl.run("delete pod brief --timeout=90s").ok();
    wait_for_images(&cluster, &["used"]);
    let failed = wait_for("the image GC Events of the node", Duration::from_secs(60), || {
        let (freed, failed) =
            (event_messages(&kubectl, "FreeDiskSpaceFailed"), event_messages(&kubectl, "ImageGCFailed"));
        if freed.is_empty() || failed.is_empty() { Err(format!("{freed:?} {failed:?}")) } else { Ok(failed) }
    });
    let start = "Failed to garbage collect required amount of images. Attempted to free ";
    assert!(failed[0].starts_with(start) && failed[0].ends_with(" bytes eligible to free."), "{failed:?}");
    // An image that a Pod waits for is kept.
    kubectl.apply(&pod("again", "example.com/again:1", "Never", &[]));
    import(&cluster, "again");
    kubectl.wait_ready("again");
}
