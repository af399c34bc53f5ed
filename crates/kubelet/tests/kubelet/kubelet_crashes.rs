//! Kubelet crashes between an action and its checkpoint, and the recovery of the next kubelet.

use super::{Node, path};
use crate::fake_runtime::{Lost, commands::Command};
use serde_json::json;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn action_of_a_crashed_kubelet_is_adopted() {
    for lost in [Lost::Sandbox, Lost::Create, Lost::Start] {
        for policy in ["Always", "Never"] {
            let mut node = Node::started("");
            node.runtime.lose(lost);
            node.pod("p", &json!({"restartPolicy": policy}));
            node.api.wait_until("it is done", |_| node.runtime.has_lost(lost)).await;
            node.stop().await;
            node.start();
            node.until_running("p").await;
            let seen =
                (node.runtime.sandbox_configs().len(), node.runtime.made("p").len(), node.runtime.starts().len());
            assert_eq!(seen, (1, 1, 1), "{lost:?} {policy}");
            assert_eq!(node.status("p")["containerStatuses"][0]["restartCount"], 0, "{lost:?} {policy}");
            // Later relists change nothing.
            tokio::time::sleep(Duration::from_secs(200)).await;
            assert_eq!((node.runtime.made("p").len(), node.runtime.starts().len()), (1, 1), "{lost:?} {policy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn container_that_exited_during_a_crash_is_not_restarted() {
    let mut node = Node::started("");
    node.runtime.lose(Lost::Start);
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.api.wait_until("it is started", |_| node.runtime.has_lost(Lost::Start)).await;
    node.stop().await;
    node.runtime.exit("p", 7, false);
    node.start();
    node.until_status("p", "has failed", |s| s["phase"] == "Failed").await;
    assert_eq!(node.status("p")["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    assert_eq!((node.runtime.made("p").len(), node.runtime.starts().len()), (1, 1));
    node.api.delete(&path("p"));
    node.api.wait_until("it is gone", |api| api.get(&path("p")).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn relist_finds_lost_events_while_other_actions_fail() {
    let node = Node::started("");
    node.runtime.keep_all(true);
    node.pod("p", &json!({}));
    for restarts in 0..4 {
        let running = |s: &serde_json::Value| s["containerStatuses"][0]["state"]["running"].is_object();
        let again = |s: &serde_json::Value| s["containerStatuses"][0]["restartCount"] == restarts && running(s);
        node.until_status("p", "runs again", again).await;
        // The first of three exited containers cannot be removed, and the last exit has no event.
        node.runtime.exit("p", 7, restarts < 3);
    }
    node.until_status("p", "tells its last end", |s| s["containerStatuses"][0]["restartCount"] == 4).await;
}

#[tokio::test(start_paused = true)]
async fn pod_deleted_during_a_crash_leaves_no_sandbox() {
    let mut node = Node::started("");
    node.runtime.lose(Lost::Sandbox);
    node.pod("p", &json!({}));
    node.api.wait_until("it is made", |_| node.runtime.has_lost(Lost::Sandbox)).await;
    node.stop().await;
    node.api.delete(&path("p"));
    node.start();
    node.api.wait_until("it is gone", |api| api.get(&path("p")).is_none() && node.runtime.standing() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn aborted_start_is_retried_by_the_next_kubelet() {
    let mut node = Node::started("");
    node.runtime.lose(Lost::Create);
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.api.wait_until("it is made", |_| node.runtime.has_lost(Lost::Create)).await;
    node.stop().await;
    // The runtime does not remove a container that is starting.
    node.runtime.keep_all(true);
    node.start();
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.runtime.give_up("p");
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.runtime.keep_all(false);
    node.until_running("p").await;
    assert_eq!(node.status("p")["containerStatuses"][0]["restartCount"], 0);
}

/// A containerd that crashes between the start of a process and its record reports the container as unknown.
#[tokio::test(start_paused = true)]
async fn unknown_container_counts_as_terminated() {
    for (policy, runs) in [("Never", 1), ("Always", 2)] {
        let mut node = Node::started("");
        node.runtime.lose(Lost::Start);
        node.pod("p", &json!({"restartPolicy": policy}));
        node.api.wait_until("it is started", |_| node.runtime.has_lost(Lost::Start)).await;
        node.stop().await;
        node.runtime.lose_sight("p");
        node.start();
        let exit = |status: &serde_json::Value, state: &str| {
            status["containerStatuses"][0][state]["terminated"]["reason"] == "ContainerStatusUnknown"
        };
        node.until_status("p", "tells its end", |s| exit(s, "state") || exit(s, "lastState")).await;
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(node.runtime.starts().len(), runs, "{policy}");
        let expected = if policy == "Never" { "Failed" } else { "Running" };
        assert_eq!(node.status("p")["phase"], expected, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn probe_waits_for_the_command_of_an_earlier_kubelet() {
    for (period, timeout) in [(1, 1), (3, 3), (10, 9), (2, 5)] {
        let mut node = Node::started("");
        node.runtime.command("ready?", Command::Hangs);
        let probe = json!({"exec": {"command": ["ready?"]}, "periodSeconds": period, "timeoutSeconds": timeout});
        node.pod("p", &json!({"container": {"readinessProbe": probe}}));
        node.until_running("p").await;
        for restarts in 1..5 {
            let so_far = node.runtime.begun().len();
            node.api.wait_until("the next one begins", |_| node.runtime.begun().len() > so_far).await;
            node.stop().await;
            // The kubelet restarts at once, or while the command may still run.
            tokio::time::sleep(Duration::from_millis(300 * (restarts - 1))).await;
            node.start();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let begun = node.runtime.begun();
        let pauses = begun.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_millis());
        // The command of an earlier kubelet may end slightly after its timeout.
        let (shortest, over) = (pauses.min().expect("commands"), timeout * 1000);
        assert!(shortest >= over, "{period} {timeout}: {begun:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pod_that_ended_without_a_kubelet_is_not_evicted() {
    let mut node = Node::started("");
    let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]);
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    node.pod("p", &json!({"restartPolicy": "Never", "volumes": volumes, "container": {"volumeMounts": mounts}}));
    node.until_running("p").await;
    let uid = node.api.get(&path("p")).expect("a Pod")["metadata"]["uid"].as_str().expect("an UID").to_owned();
    let volume = node.dir.path().join("pods").join(uid).join("volumes/v");
    node.stop().await;
    std::fs::write(volume.join("file"), vec![1; 2 << 20]).expect("a file");
    node.runtime.exit("p", 0, false);
    node.runtime.lists_take(Duration::from_secs(1));
    node.start();
    node.until_status("p", "has ended", |s| s["phase"] == "Succeeded" || s["phase"] == "Failed").await;
    let status = node.status("p");
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Succeeded"), &json!(null)));
}

#[tokio::test(start_paused = true)]
async fn pod_that_ended_without_a_kubelet_frees_its_slot() {
    let mut node = Node::started("maxPods: 1");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.until_running("p").await;
    node.stop().await;
    node.runtime.exit("p", 0, false);
    node.pod("q", &json!({}));
    node.runtime.lists_take(Duration::from_secs(1));
    node.start();
    node.until_status("q", "is decided about", |s| s["phase"] == "Running" || s["phase"] == "Failed").await;
    assert_eq!(node.status("q")["phase"], "Running", "{}", node.status("q"));
}

/// A renamed node terminates the Pods of its old name, and cannot write their status.
#[tokio::test(start_paused = true)]
async fn status_of_another_nodes_pod_is_not_retried() {
    let mut node = Node::new("");
    node.name = "m";
    let write = format!("PATCH {}/status", path("p"));
    for _ in 0..100 {
        node.api.refuse_next(&write, 403);
    }
    node.start();
    node.pod("p", &json!({}));
    node.api.wait_until("it is refused", |api| api.refusals(&write) < 100).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(node.api.refusals(&write) > 90, "{} are left", node.api.refusals(&write));
}
