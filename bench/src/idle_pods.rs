//! Memory of Pods that no node runs, and where it is.
//!
//! Three kinds of objects of the same size are measured from outside: ConfigMaps, which only the store and the garbage
//! collector keep, Pods of another scheduler, which the controllers keep too, and Pods that wait in the scheduler's queue.

use crate::{
    api_load::{gated_pod, run_concurrently},
    client::Api,
    podium::Podium,
};
use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Number of objects.
const OBJECTS: usize = 40_000;
const CLIENTS: usize = 32;
/// Interval between two samples of the resident memory.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of samples.
const SAMPLES: usize = 20;

/// Resident memory of an object.
#[derive(Clone, Copy)]
struct Footprint {
    written: u64,
    loaded: u64,
    /// Its JSON, as the server stores it.
    json: usize,
}

/// Measures the memory of an idle Pod, and its parts.
pub(crate) async fn run() -> Result<String> {
    let pods = measure("pods", gated_pod).await?;
    let foreign = measure("pods", |i| {
        let mut pod = gated_pod(i);
        pod["spec"]["schedulerName"] = "another".into();
        pod
    })
    .await?;
    let padding = "x".repeat(pods.json.saturating_sub(CONFIG_MAP_OVERHEAD));
    let maps = measure("configmaps", move |i| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m-{i}")}, "data": {"v": padding}})
    })
    .await?;
    let parts = |state: fn(&Footprint) -> u64| {
        let [all, without_scheduler, stored] = [&pods, &foreign, &maps].map(state);
        let (controllers, scheduler) =
            (without_scheduler.saturating_sub(stored), all.saturating_sub(without_scheduler));
        format!("{all} B (store {stored}, controllers {controllers}, scheduler {scheduler})")
    };
    Ok(format!(
        "{} after writing, {} after a start; {} B of JSON",
        parts(|f| f.written),
        parts(|f| f.loaded),
        pods.json
    ))
}

/// Bytes of a stored ConfigMap's JSON besides its data.
const CONFIG_MAP_OVERHEAD: usize = 390;

/// Measures one kind of objects in a new cluster.
async fn measure(
    resource: &'static str,
    object: impl Fn(usize) -> Value + Clone + Send + 'static,
) -> Result<Footprint> {
    let mut podium = Podium::boot()?;
    let before = settled(&podium).await?;
    let api = Api::connect(&podium.kubeconfig(), "idle").await?;
    api.create_namespace().await?;
    let a = api.clone();
    run_concurrently(OBJECTS, CLIENTS, move |i| {
        let (a, object) = (a.clone(), object(i));
        async move { a.call(Method::POST, &a.path(resource), Some(&object)).await.map(drop) }
    })
    .await?;
    let written = settled(&podium).await?.saturating_sub(before) / OBJECTS as u64;
    podium.restart()?;
    let loaded = settled(&podium).await?.saturating_sub(before) / OBJECTS as u64;
    let api = Api::connect(&podium.kubeconfig(), "idle").await?;
    let size = api.size(&api.path(resource)).await?;
    Ok(Footprint { written, loaded, json: size / OBJECTS })
}

/// Waits until the resident memory changes by less than one percent between two samples, and returns it.
async fn settled(podium: &Podium) -> Result<u64> {
    let mut last = podium.resident()?;
    for _ in 0..SAMPLES {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        let now = podium.resident()?;
        if now.abs_diff(last) * 100 < now {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}
