//! Container exits that an event reports before the runtime has cleaned up the container.

use super::{Node, path};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{io::Write, path::PathBuf, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

/// Time in which immediate effects occur.
const WHILE: Duration = Duration::from_secs(3);

fn terminated(node: &Node, name: &str) -> Value {
    node.status(name)["containerStatuses"][0]["state"]["terminated"].clone()
}

async fn until_terminated(node: &Node, name: &str) {
    node.until_status(name, "its end is told", |s| s["containerStatuses"][0]["state"]["terminated"].is_object()).await;
}

async fn until_standing(node: &Node, sandboxes: usize) {
    let deadline = Instant::now() + Duration::from_secs(70);
    while node.runtime.standing() != sandboxes {
        assert!(Instant::now() < deadline, "{} sandboxes stand, not {sandboxes}", node.runtime.standing());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Appends a line to the log of the newest container.
fn writes(node: &Node, name: &str, line: &str) {
    let config = node.runtime.made(name).pop().expect("it was made");
    let sandboxes = node.runtime.sandbox_configs();
    let sandbox = sandboxes.iter().find(|s| s.name == name).expect("it has a sandbox");
    let file = sandbox.log_directory.join(config.log_path);
    let mut log = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a log");
    writeln!(log, "2026-01-01T00:00:00Z stdout F {line}").expect("it is written");
}

fn message_file(node: &Node, name: &str) -> PathBuf {
    let object = node.api.get(&path(name)).expect("a Pod");
    let uid = object["metadata"]["uid"].as_str().expect("an UID").to_owned();
    node.dir.path().join("pods").join(uid).join("containers").join(name).join("0.termination")
}

/// Requests a log from the kubelet's HTTP API.
fn response(node: &Node, name: &str, query: &str) -> impl Future<Output = http::Response<Incoming>> + use<> {
    let kubelet = node.kubelet.clone().expect("it runs");
    let uri = format!("/containerLogs/x/{name}/{name}?{query}");
    async move {
        let (ours, theirs) = tokio::io::duplex(4096);
        tokio::spawn(async move { kubelet.serve_stream(theirs).await });
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.expect("a connection");
        tokio::spawn(connection);
        let request = http::Request::get(uri).header("host", "n").body(Empty::<Bytes>::new()).expect("a request");
        client.send_request(request).await.expect("an answer")
    }
}

async fn text(response: http::Response<Incoming>) -> String {
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

/// Reads a log in the background.
fn reads(node: &Node, name: &str, query: &str) -> JoinHandle<String> {
    let response = response(node, name, query);
    tokio::spawn(async move { text(response.await).await })
}

#[tokio::test(start_paused = true)]
async fn exit_is_reported_at_once_and_cleanup_waits_for_the_runtime() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.pod("q", &json!({"restartPolicy": "Always"}));
    node.until_running("p").await;
    node.until_running("q").await;
    let began = Instant::now();
    node.runtime.reap("p", 3);
    node.until_status("p", "has failed", |s| s["phase"] == "Failed").await;
    node.runtime.reap("q", 0);
    until_terminated(&node, "q").await;
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    let (end, restarting) = (terminated(&node, "p"), terminated(&node, "q"));
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(3), &json!("Error")));
    assert_eq!((&restarting["exitCode"], &restarting["reason"]), (&json!(0), &json!("Completed")));
    tokio::time::sleep(WHILE).await;
    assert_eq!((node.runtime.standing(), node.runtime.made("q").len()), (2, 1));
    node.runtime.clear("p");
    until_standing(&node, 1).await;
    node.runtime.clear("q");
    node.until_status("q", "runs again", |s| s["containerStatuses"][0]["restartCount"] == 1).await;
    assert_eq!(terminated(&node, "p"), end, "what was told stays");
}

#[tokio::test(start_paused = true)]
async fn log_reader_gets_the_last_line() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.until_running("p").await;
    writes(&node, "p", "one");
    let before = reads(&node, "p", "follow=true");
    node.runtime.reap("p", 0);
    until_terminated(&node, "p").await;
    let readers = [before, reads(&node, "p", ""), reads(&node, "p", "follow=true"), reads(&node, "p", "tailLines=1")];
    tokio::time::sleep(WHILE).await;
    assert!(readers.iter().all(|reader| !reader.is_finished()), "somebody did not wait");
    writes(&node, "p", "last");
    node.runtime.clear("p");
    let cases = [
        ("follow=true before the exit", "one\nlast\n"),
        ("", "one\nlast\n"),
        ("follow=true", "one\nlast\n"),
        ("tailLines=1", "last\n"),
    ];
    for (reader, (query, expected)) in readers.into_iter().zip(cases) {
        assert_eq!(reader.await.expect("it reads"), expected, "{query:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_readers_beyond_the_namespace_limit_are_rejected() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.until_running("p").await;
    writes(&node, "p", "one");
    let mut followers = Vec::new();
    for _ in 0..128 {
        followers.push(response(&node, "p", "follow=true").await);
    }
    assert!(followers.iter().all(|follower| follower.status() == 200));
    let refused = response(&node, "p", "tailLines=1").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(text(refused).await, "too many logs of namespace \"x\" are being read, please try again later");
    drop(followers);
    let deadline = Instant::now() + Duration::from_secs(10);
    while response(&node, "p", "follow=true").await.status() != 200 {
        assert!(Instant::now() < deadline, "who ends makes no room");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn log_is_readable_if_the_runtime_never_completes() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.until_running("p").await;
    writes(&node, "p", "one");
    node.runtime.reap("p", 0);
    until_terminated(&node, "p").await;
    let began = Instant::now();
    assert_eq!(reads(&node, "p", "").await.expect("it reads"), "one\n");
    assert!((9..12).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn termination_message_from_the_log_waits_for_the_log() {
    let node = Node::started("");
    let fallback = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    for name in ["log", "file", "fine"] {
        node.pod(name, &json!({"restartPolicy": "Never", "container": fallback}));
        node.until_running(name).await;
        writes(&node, name, "one");
    }
    std::fs::write(message_file(&node, "file"), "from the file").expect("a message");
    node.runtime.reap("log", 1);
    node.runtime.reap("file", 1);
    node.runtime.reap("fine", 0);
    until_terminated(&node, "file").await;
    until_terminated(&node, "fine").await;
    assert_eq!(terminated(&node, "file")["message"], "from the file");
    assert_eq!(terminated(&node, "fine")["message"], Value::Null);
    tokio::time::sleep(WHILE).await;
    assert_eq!(terminated(&node, "log"), Value::Null, "the log may lack its last line");
    writes(&node, "log", "last");
    node.runtime.clear("log");
    until_terminated(&node, "log").await;
    assert_eq!(terminated(&node, "log")["message"], "one\nlast\n");
}

#[tokio::test(start_paused = true)]
async fn oom_kill_is_decided_by_the_runtime() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never", "container": {"resources": {"limits": {"memory": "1Gi"}}}}));
    node.until_running("p").await;
    // The node has no cgroup with an OOM counter.
    node.runtime.reap("p", 1);
    tokio::time::sleep(WHILE).await;
    assert_eq!(terminated(&node, "p"), Value::Null);
    node.runtime.clear("p");
    until_terminated(&node, "p").await;
}

#[tokio::test(start_paused = true)]
async fn duplicate_exit_event_counts_once() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Always"}));
    node.until_running("p").await;
    node.runtime.reap("p", 3);
    until_terminated(&node, "p").await;
    // Another code shows which event counted. The logs of two simultaneous events are read in any order.
    node.runtime.reap("p", 4);
    node.runtime.clear("p");
    node.until_status("p", "runs again", |s| s["containerStatuses"][0]["state"]["running"].is_object()).await;
    let container = node.status("p")["containerStatuses"][0].clone();
    assert_eq!((&container["restartCount"], &container["lastState"]["terminated"]["exitCode"]), (&json!(1), &json!(3)));
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(node.runtime.made("p").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn relist_finds_the_completed_exit() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.until_running("p").await;
    node.runtime.reap("p", 0);
    until_terminated(&node, "p").await;
    // The wait after the event has timed out by then.
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(node.runtime.standing(), 1);
    node.runtime.clear("p");
    let began = Instant::now();
    until_standing(&node, 0).await;
    assert!(began.elapsed() <= Duration::from_secs(61), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn kubelet_crash_during_exit_loses_nothing() {
    let mut node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.pod("q", &json!({"restartPolicy": "Never"}));
    for name in ["p", "q"] {
        node.until_running(name).await;
        node.runtime.reap(name, 3);
        until_terminated(&node, name).await;
    }
    let reported = terminated(&node, "p");
    node.stop().await;
    node.runtime.clear("p");
    node.start();
    // Meanwhile one exit has completed, the other has not.
    until_standing(&node, 1).await;
    tokio::time::sleep(WHILE).await;
    assert_eq!((node.runtime.standing(), terminated(&node, "p")), (1, reported));
    node.runtime.clear("q");
    until_standing(&node, 0).await;
}
