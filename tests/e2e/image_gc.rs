//! Images that nobody uses are removed: after a while, and when the disk fills up.

use crate::{
    Alone,
    image_pulls::{pod, ready, saying},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tests::{Cluster, Kubectl, Setup, wait_for};

pub(crate) const TESTS: &[Alone] = &[
    ("images unused for imageMaximumGCAge are removed", images_unused_for_maximum_age_are_removed),
    ("unused images are removed above imageGCHighThresholdPercent", unused_images_are_removed_above_high_threshold),
];

fn import(cluster: &Cluster, name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("image.tar");
    test_images::busybox(&tar, &[&format!("example.com/{name}:1")], &saying(name)).unwrap();
    cluster.import(&tar);
}

/// The images of the tests that are there, and whether the sandbox image is.
fn images(cluster: &Cluster) -> (BTreeSet<String>, bool) {
    let output = cluster.podium(&["image", "ls"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|l| l.strip_prefix("example.com/")?.split_once(':'));
    (names.map(|(name, _)| name.to_owned()).collect(), text.contains("podium.local/pause"))
}

#[track_caller]
fn until_only(cluster: &Cluster, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    wait_for(&format!("only {expected:?} to be left"), Duration::from_secs(60), || match images(cluster) {
        (left, true) if left == expected => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

fn run(kubectl: &Kubectl, name: &str) {
    kubectl.apply(&pod(name, &format!("example.com/{name}:1"), "Never", &[]));
    ready(kubectl, name);
}

fn images_unused_for_maximum_age_are_removed() {
    let kubelet = json!({"imageMinimumGCAge": "10s", "imageMaximumGCAge": "12s"});
    let cluster = Setup::default().without_images().kubelet(kubelet).start();
    let kubectl = cluster.kubectl_in("default");
    for name in ["used", "brief", "idle"] {
        import(&cluster, name);
    }
    run(&kubectl, "used");
    run(&kubectl, "brief");
    // The look that follows the end of a Pod sees the image that never was used, too.
    kubectl.run("delete pod brief --timeout=30s").ok();
    until_only(&cluster, &["used"]);
    kubectl.run("delete pod used --timeout=30s").ok();
    until_only(&cluster, &[]);
}

/// The messages of the node's events of this reason.
fn told(kubectl: &Kubectl, reason: &str) -> Vec<String> {
    let selector = format!("involvedObject.kind=Node,reason={reason}");
    let list = kubectl.args(&["get", "events", "-A", "--field-selector", &selector, "-o", "json"], "").ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|e| e["message"].as_str().unwrap_or_default().to_owned()).collect()
}

fn unused_images_are_removed_above_high_threshold() {
    // Each disk is fuller than this, and cannot become as empty.
    let kubelet = json!({"imageGCHighThresholdPercent": 1, "imageGCLowThresholdPercent": 0, "imageMinimumGCAge": "1s"});
    let cluster = Setup::default().without_images().kubelet(kubelet).start();
    let kubectl = cluster.kubectl_in("default");
    for name in ["used", "brief"] {
        import(&cluster, name);
        run(&kubectl, name);
    }
    import(&cluster, "idle");
    kubectl.run("delete pod brief --timeout=30s").ok();
    until_only(&cluster, &["used"]);
    let failed = wait_for("the node to tell", Duration::from_secs(60), || {
        let (freed, failed) = (told(&kubectl, "FreeDiskSpaceFailed"), told(&kubectl, "ImageGCFailed"));
        if freed.is_empty() || failed.is_empty() { Err(format!("{freed:?} {failed:?}")) } else { Ok(failed) }
    });
    let start = "Failed to garbage collect required amount of images. Attempted to free ";
    assert!(failed[0].starts_with(start) && failed[0].ends_with(" bytes eligible to free."), "{failed:?}");
    // The sandbox image is there; and an image that a Pod waits for stays, though nothing runs of it yet.
    kubectl.apply(&pod("again", "example.com/again:1", "Never", &[]));
    import(&cluster, "again");
    ready(&kubectl, "again");
}
