//! Container exits are reported before the runtime has cleaned up: logs stay complete and the runtime is not disturbed.

use futures::{AsyncReadExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{LogParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually, wait_for};

const LINES: usize = 10_000;
const ROUNDS: usize = 20;

/// Returns a Pod that waits, prints many lines and exits.
fn verbose_pod(name: &str, waits: f32, code: i32) -> PodBuilder {
    let script = format!("sleep {waits}; seq 1 {LINES}; exit {code}");
    PodBuilder::new(name).restart_policy("Never").script(&script)
}

/// Checks that the log as read at the exit is the final log, with everything that the container wrote.
#[track_caller]
fn assert_whole(read: &str, log: &str, who: &str) {
    let (read, log): (Vec<&str>, Vec<&str>) = (read.lines().collect(), log.lines().collect());
    assert_eq!(log.len(), LINES, "{who}");
    assert_eq!((read.len(), read.last()), (log.len(), log.last()), "{who}");
}

/// Returns the final log.
fn final_log(cluster: &Cluster, kubectl: &Kubectl, name: &str) -> String {
    let uid = kubectl.value(&format!("pod/{name}"), "/metadata/uid");
    let logs = format!("kubelet/logs/{}_{name}_{}/c/0.log", kubectl.namespace(), uid.as_str().unwrap());
    assert!(cluster.data_dir().join(&logs).exists(), "{logs}");
    kubectl.run(&format!("logs {name}")).ok()
}

#[e2e_test("the log is complete as soon as a watch shows that the container ended")]
fn log_is_complete_when_watch_shows_exit(cluster: &Cluster) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, kubectl) = (cluster.client(&runtime), cluster.kubectl());
    for round in 0..ROUNDS {
        let read = runtime.block_on(async {
            let reads = follow_one(client.clone(), kubectl.namespace(), round);
            tokio::time::timeout(Duration::from_secs(60), reads).await.expect("it ends in time")
        });
        let log = final_log(cluster, &kubectl, &format!("p-{round}"));
        read.iter().for_each(|(who, text)| assert_whole(text, &log, &format!("p-{round}: {who}")));
    }
}

/// Reads the log of a Pod in every way as soon as a watch shows its end.
async fn follow_one(client: Client, namespace: &str, round: usize) -> Vec<(&'static str, String)> {
    let (pods, name) = (Api::<Pod>::namespaced(client, namespace), format!("p-{round}"));
    let code = i32::try_from(round % 2).unwrap();
    let pod = serde_json::from_value(verbose_pod(&name, 0.3, code).build()).unwrap();
    let made = pods.create(&PostParams::default(), &pod).await.unwrap();
    let seen = made.metadata.resource_version.unwrap();
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = pods.watch(&params, &seen).await.unwrap().boxed();
    let (mut from_the_start, mut ended) = (None, false);
    while !ended {
        let WatchEvent::Modified(pod) = events.next().await.unwrap().unwrap() else { continue };
        let shown = serde_json::to_value(pod.status).unwrap();
        let state = &shown["containerStatuses"][0]["state"];
        if state["running"].is_object() && from_the_start.is_none() {
            let (pods, name) = (pods.clone(), name.clone());
            from_the_start = Some(tokio::spawn(async move { followed(&pods, &name).await }));
        }
        ended = state["terminated"].is_object();
        assert!(!ended || state["terminated"]["exitCode"] == code, "{state}");
    }
    let once = LogParams::default();
    let (whole, followed_from_now) = tokio::join!(pods.logs(&name, &once), followed(&pods, &name));
    let mut read = vec![("logs", whole.unwrap()), ("logs -f from the end", followed_from_now)];
    if let Some(reader) = from_the_start {
        read.push(("logs -f from the start", reader.await.unwrap()));
    }
    read
}

async fn followed(pods: &Api<Pod>, name: &str) -> String {
    let params = LogParams { follow: true, ..LogParams::default() };
    let (mut log, mut text) = (pods.log_stream(name, &params).await.unwrap(), String::new());
    log.read_to_string(&mut text).await.unwrap();
    text
}

#[e2e_test("kubectl logs shows the last line of a container that has just ended")]
fn kubectl_logs_shows_last_line_after_exit(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    for round in 0..5 {
        let name = format!("p-{round}");
        kubectl.apply(&verbose_pod(&name, 3.0, 0).to_string());
        eventually("the container to begin", || {
            let state = kubectl.value(&format!("pod/{name}"), "/status/containerStatuses/0/state");
            ["running", "terminated"].iter().any(|kind| state[kind].is_object())
        });
        let (read, followed) = std::thread::scope(|scope| {
            let follower = scope.spawn(|| kubectl.run(&format!("logs -f {name}")).ok());
            kubectl.run(&format!("wait --for=jsonpath={{.status.phase}}=Succeeded --timeout=60s pod/{name}")).ok();
            (kubectl.run(&format!("logs {name}")).ok(), follower.join().unwrap())
        });
        let log = final_log(cluster, &kubectl, &name);
        assert_whole(&read, &log, "kubectl logs");
        assert_whole(&followed, &log, "kubectl logs -f");
    }
}

#[e2e_test("FallbackToLogsOnError gives the complete end of the log")]
fn fallback_termination_message_is_complete(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    for round in 0..5 {
        let name = format!("p-{round}");
        let pod = verbose_pod(&name, 0.3, 1);
        let pod = pod.container(&json!({"terminationMessagePolicy": "FallbackToLogsOnError"}));
        kubectl.apply(&pod.to_string());
        let terminated = "/status/containerStatuses/0/state/terminated";
        let object = format!("pod/{name}");
        eventually("the container to terminate", || kubectl.value(&object, terminated).is_object());
        let message = kubectl.value(&object, &format!("{terminated}/message"));
        let log = final_log(cluster, &kubectl, &name);
        assert!(message.as_str().is_some_and(|m| !m.is_empty() && log.ends_with(m)), "{name}: {message}");
    }
}

/// Upstream: `MaxPodTerminationMessageLogLength`, 12 KiB for all containers of a Pod.
#[e2e_test("containers of a Pod share the 12 KiB of termination messages")]
fn termination_messages_share_their_limit(cluster: &Cluster) {
    const INIT: usize = 11;
    let kubectl = cluster.kubectl();
    let says = "i=0; while [ $i -lt 400 ]; do printf 0123456789; i=$((i+1)); done > /dev/termination-log";
    let init: Vec<Value> = (0..INIT).map(|n| tests::container(&format!("i{n}"), says)).collect();
    let pod = PodBuilder::new("p").restart_policy("Never").spec(&json!({"initContainers": init})).script(says);
    kubectl.apply(&pod.to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    let status = kubectl.value("pod/p", "/status");
    let lists = [&status["initContainerStatuses"], &status["containerStatuses"]];
    let lengths = lists.into_iter().flat_map(|list| list.as_array().unwrap());
    let lengths: Vec<_> = lengths.map(|c| c["state"]["terminated"]["message"].as_str().map(str::len)).collect();
    assert_eq!(lengths, [Some(1024); INIT + 1], "{status}");
}

/// Init containers exit one after another, each while the next one starts; then their Pod ends.
#[e2e_test("hundreds of exits leave no sandbox and no error in the log")]
fn many_exits_leave_no_leftovers() {
    const PODS: usize = 24;
    const INIT: usize = 8;
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl();
    let init: Vec<Value> = (0..INIT)
        .map(|n| json!({"name": format!("i{n}"), "image": test_images::BUSYBOX, "command": ["true"]}))
        .collect();
    let pod = |n: usize| {
        let pod = PodBuilder::new(&format!("p-{n}")).restart_policy("Never").command(&["true"]);
        pod.spec(&json!({"initContainers": init})).build()
    };
    let pods: Vec<Value> = (0..PODS).map(pod).collect();
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string());
    let phases = || kubectl.run("get pods -o jsonpath={.items[*].status.phase}").ok();
    wait_for("all Pods to succeed", Duration::from_secs(300), || {
        let shown = phases();
        if shown.split(' ').filter(|p| *p == "Succeeded").count() == PODS { Ok(()) } else { Err(shown) }
    });
    let codes = kubectl.run("get pods -o jsonpath={.items[*].status.initContainerStatuses[*].state.terminated.reason}");
    assert_eq!(codes.ok().split(' ').filter(|r| *r == "Completed").count(), PODS * INIT);
    kubectl.run("delete pods --all --timeout=120s").ok();
    let sandboxes = cluster.data_dir().join("engine/pods");
    wait_for("no sandbox to be left", Duration::from_secs(60), || {
        let left = std::fs::read_dir(&sandboxes).unwrap().count();
        if left == 0 { Ok(()) } else { Err(format!("{left} sandboxes")) }
    });
    // Warnings of other components about a busy machine are allowed.
    let log = cluster.log();
    let own = log.lines().filter(|line| ["kubelet::", "engine::"].iter().any(|module| line.contains(module)));
    // The warning of an old OCI runtime is not of these Pods.
    let own = own.filter(|line| !line.contains("engine::oci_runtime_version"));
    let faults: Vec<&str> = own.filter(|line| ["ERROR", "WARN"].iter().any(|level| line.contains(level))).collect();
    assert_eq!(faults, [""; 0]);
}
