//! Pod start and deletion latency with real containers.

use crate::{
    client::{Api, WatchEvent},
    report::{ms, percentile},
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

/// Measures the p50 latency of POST to Ready and of DELETE to gone, one Pod after another.
pub(crate) async fn one_by_one(api: &Api) -> Result<(String, String)> {
    let mut events = api.watch("pods").await?;
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for i in 0..15 {
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
    Ok((ms(percentile(&mut starts, 0.5)), ms(percentile(&mut stops, 0.5))))
}

/// Measures the time until the last of 30 Pods is Ready.
pub(crate) async fn burst(api: &Api) -> Result<String> {
    let mut events = api.watch("pods").await?;
    let mut waiting: BTreeSet<String> = (0..30).map(|i| format!("b-{i}")).collect();
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
    api.call(Method::DELETE, &api.path("pods"), None).await?;
    let mut gone = 0;
    while gone < 30 {
        gone += usize::from(next(&mut events).await?.1["type"] == "DELETED");
    }
    let seconds = |all: &mut [Duration], share| percentile(all, share).as_secs_f64();
    Ok(format!("{:.2} s (half of them after {:.2} s)", seconds(&mut all, 1.0), seconds(&mut all, 0.5)))
}
