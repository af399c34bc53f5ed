//! Pod start and deletion latency with real containers.

use crate::{
    client::{Api, WatchEvent},
    machine_group::{self, proportional_set_size},
    podium::Podium,
    report::percentile,
};
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::UnboundedReceiver;

const LIMIT: Duration = Duration::from_secs(120);
/// Number of Pods that start at once.
const BURST: usize = 30;
/// Number of Pods that start one after another.
const SINGLE: u32 = 15;
/// Time for what follows the start or the end of Pods, before memory and CPU time are read.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
           "spec": {"terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "c", "image": test_images::BUSYBOX, "imagePullPolicy": "IfNotPresent",
                                    "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"]}]}})
}

/// Returns whether a Pod is Running and Ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    pod["status"]["phase"] == "Running"
        && conditions.is_some_and(|c| c.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

async fn next(events: &mut UnboundedReceiver<WatchEvent>) -> Result<WatchEvent> {
    let event = tokio::time::timeout(LIMIT, events.recv()).await.context("no event for 120 s")?;
    event.context("the watch ended")
}

/// Waits for an event of a Pod that meets a condition, and returns its arrival time.
pub(crate) async fn wait(
    events: &mut UnboundedReceiver<WatchEvent>,
    name: &str,
    mut done: impl FnMut(&Value) -> bool,
) -> Result<Instant> {
    loop {
        let (at, event) = next(events).await?;
        if event["object"]["metadata"]["name"] == name && done(&event) {
            return Ok(at);
        }
    }
}

/// Results of [`one_by_one`].
pub(crate) struct SinglePods {
    /// POST to Ready, p50.
    pub(crate) start: Duration,
    /// DELETE to gone, p50.
    pub(crate) stop: Duration,
    /// CPU time of a Pod, started and stopped: of Podium and all processes that it starts.
    pub(crate) cpu: Duration,
}

/// Starts and deletes one Pod after another.
pub(crate) async fn one_by_one(podium: &Podium, api: &Api) -> Result<SinglePods> {
    let mut events = api.watch("pods").await?;
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    let cpu = podium.group.cpu()?;
    for i in 0..SINGLE {
        let name = format!("s-{i}");
        let t = Instant::now();
        api.call(Method::POST, &api.path("pods"), Some(&pod(&name))).await?;
        starts.push(wait(&mut events, &name, |e| is_ready(&e["object"])).await?.duration_since(t));
        // Ready means that the shell runs; setting its trap takes a moment more.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let t = Instant::now();
        api.call(Method::DELETE, &format!("{}/{name}", api.path("pods")), None).await?;
        stops.push(wait(&mut events, &name, |e| e["type"] == "DELETED").await?.duration_since(t));
    }
    // The removal of directories and mounts follows the deletion.
    tokio::time::sleep(SETTLE).await;
    let cpu = podium.group.cpu()?.saturating_sub(cpu) / SINGLE;
    Ok(SinglePods { start: percentile(&mut starts, 0.5), stop: percentile(&mut stops, 0.5), cpu })
}

/// Results of [`burst`].
pub(crate) struct Burst {
    /// POST of the first to Ready of the last Pod.
    pub(crate) last: Duration,
    /// Until half of them are Ready.
    pub(crate) half: Duration,
    /// Memory of the processes that exist for one idle Pod, without its own: keeper or shim, and sandbox. In bytes.
    pub(crate) memory: u64,
}

/// Starts 30 Pods at once.
pub(crate) async fn burst(podium: &Podium, api: &Api) -> Result<Burst> {
    let mut events = api.watch("pods").await?;
    let mut waiting: BTreeSet<String> = (0..BURST).map(|i| format!("b-{i}")).collect();
    let (t, mut all) = (Instant::now(), Vec::new());
    for name in &waiting {
        api.call(Method::POST, &api.path("pods"), Some(&pod(name))).await?;
    }
    while !waiting.is_empty() {
        let (at, event) = next(&mut events).await?;
        if event["object"]["status"]["phase"] == "Failed" {
            bail!("a Pod failed: {event}");
        }
        if is_ready(&event["object"]) && waiting.remove(event["object"]["metadata"]["name"].as_str().unwrap_or("")) {
            all.push(at.duration_since(t));
        }
    }
    tokio::time::sleep(SETTLE).await;
    let memory = proportional_set_size(&helper_processes(podium)) / u64::try_from(BURST)?;
    api.call(Method::DELETE, &api.path("pods"), None).await?;
    let mut gone = 0;
    while gone < BURST {
        gone += usize::from(next(&mut events).await?.1["type"] == "DELETED");
    }
    Ok(Burst { last: percentile(&mut all, 1.0), half: percentile(&mut all, 0.5), memory })
}

/// Returns the processes that exist for Pods, without those of [`pod`].
fn helper_processes(podium: &Podium) -> Vec<u32> {
    let is_helper = |process: &u32| *process != podium.id() && machine_group::name(*process) != "containerd";
    let is_sandbox = |process: &u32| !matches!(machine_group::name(*process).as_str(), "sh" | "sleep");
    let own = podium.group.own_processes().into_iter().filter(is_helper);
    own.chain(podium.group.pod_processes().into_iter().filter(is_sandbox)).collect()
}
