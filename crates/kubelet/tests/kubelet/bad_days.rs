//! A kubelet that dies at the worst moment, and the next one.

use super::{Node, path};
use crate::fake_runtime::{Lost, commands::Command};
use serde_json::json;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn what_was_done_for_a_kubelet_that_died_is_found_and_not_done_again() {
    for lost in [Lost::Sandbox, Lost::Create, Lost::Start] {
        for policy in ["Always", "Never"] {
            let mut node = Node::started("");
            node.runtime.lose(lost);
            node.pod("p", &json!({"restartPolicy": policy}));
            node.api.until("it is done", |_| node.runtime.has_lost(lost)).await;
            node.stop().await;
            node.start();
            node.until_running("p").await;
            let seen =
                (node.runtime.sandbox_configs().len(), node.runtime.made("p").len(), node.runtime.starts().len());
            assert_eq!(seen, (1, 1, 1), "{lost:?} {policy}");
            assert_eq!(node.status("p")["containerStatuses"][0]["restartCount"], 0, "{lost:?} {policy}");
            // A list that comes later tells nothing new.
            tokio::time::sleep(Duration::from_secs(200)).await;
            assert_eq!((node.runtime.made("p").len(), node.runtime.starts().len()), (1, 1), "{lost:?} {policy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ran_and_ended_while_its_kubelet_died_is_not_started_again() {
    let mut node = Node::started("");
    node.runtime.lose(Lost::Start);
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.api.until("it is started", |_| node.runtime.has_lost(Lost::Start)).await;
    node.stop().await;
    node.runtime.exit("p", 7, false);
    node.start();
    node.until_status("p", "has failed", |s| s["phase"] == "Failed").await;
    assert_eq!(node.status("p")["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    assert_eq!((node.runtime.made("p").len(), node.runtime.starts().len()), (1, 1));
    node.api.delete(&path("p"));
    node.api.until("it is gone", |api| api.get(&path("p")).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_repairs_what_events_lost_also_while_something_else_fails_again_and_again() {
    let node = Node::started("");
    node.runtime.keep_all(true);
    node.pod("p", &json!({}));
    for restarts in 0..4 {
        let running = |s: &serde_json::Value| s["containerStatuses"][0]["state"]["running"].is_object();
        let again = |s: &serde_json::Value| s["containerStatuses"][0]["restartCount"] == restarts && running(s);
        node.until_status("p", "runs again", again).await;
        // The first one of three that ended cannot be removed, and of the last end nobody is told.
        node.runtime.exit("p", 7, restarts < 3);
    }
    node.until_status("p", "tells its last end", |s| s["containerStatuses"][0]["restartCount"] == 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_while_its_kubelet_is_away_leaves_no_sandbox_that_it_did_not_hear_of() {
    let mut node = Node::started("");
    node.runtime.lose(Lost::Sandbox);
    node.pod("p", &json!({}));
    node.api.until("it is made", |_| node.runtime.has_lost(Lost::Sandbox)).await;
    node.stop().await;
    node.api.delete(&path("p"));
    node.start();
    node.api.until("it is gone", |api| api.get(&path("p")).is_none() && node.runtime.standing() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_with_its_kubelet_is_made_again_by_the_next_one() {
    let mut node = Node::started("");
    node.runtime.lose(Lost::Create);
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.api.until("it is made", |_| node.runtime.has_lost(Lost::Create)).await;
    node.stop().await;
    // While a runtime is at a start, it removes nothing.
    node.runtime.keep_all(true);
    node.start();
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.runtime.give_up("p");
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.runtime.keep_all(false);
    node.until_running("p").await;
    assert_eq!(node.status("p")["containerStatuses"][0]["restartCount"], 0);
}

/// Containerd that dies between the start of a process and its note of it shows the container as unknown.
#[tokio::test(start_paused = true)]
async fn a_container_that_the_runtime_lost_at_its_start_counts_as_one_that_ran() {
    for (policy, runs) in [("Never", 1), ("Always", 2)] {
        let mut node = Node::started("");
        node.runtime.lose(Lost::Start);
        node.pod("p", &json!({"restartPolicy": policy}));
        node.api.until("it is started", |_| node.runtime.has_lost(Lost::Start)).await;
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
        assert_eq!(node.status("p")["phase"], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn no_command_of_a_probe_is_begun_before_that_of_an_earlier_kubelet_is_over() {
    for (period, timeout) in [(1, 1), (3, 3), (10, 9), (2, 5)] {
        let mut node = Node::started("");
        node.runtime.command("ready?", Command::Hangs);
        let probe = json!({"exec": {"command": ["ready?"]}, "periodSeconds": period, "timeoutSeconds": timeout});
        node.pod("p", &json!({"container": {"readinessProbe": probe}}));
        node.until_running("p").await;
        for restarts in 1..5 {
            let so_far = node.runtime.begun().len();
            node.api.until("the next one begins", |_| node.runtime.begun().len() > so_far).await;
            node.stop().await;
            // It comes back at once, or while the command might still run.
            tokio::time::sleep(Duration::from_millis(300 * (restarts - 1))).await;
            node.start();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let begun = node.runtime.begun();
        let pauses = begun.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_millis());
        // What is left of an earlier kubelet may end a moment after its time.
        let (shortest, over) = (pauses.min().expect("commands"), timeout * 1000);
        assert!(shortest >= over, "{period} {timeout}: {begun:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_no_kubelet_was_there_does_not_go_for_what_it_took() {
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
async fn what_ended_while_no_kubelet_was_there_takes_no_room_from_others() {
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

/// A node that has another name now ends what it started under the old one, and has no say in it.
#[tokio::test(start_paused = true)]
async fn a_status_of_another_nodes_pod_is_not_written_again_and_again() {
    let mut node = Node::new("");
    node.name = "m";
    let write = format!("PATCH {}/status", path("p"));
    for _ in 0..100 {
        node.api.refuse(&write, 403);
    }
    node.start();
    node.pod("p", &json!({}));
    node.api.until("it is refused", |api| api.refusals(&write) < 100).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(node.api.refusals(&write) > 90, "{} are left", node.api.refusals(&write));
}
