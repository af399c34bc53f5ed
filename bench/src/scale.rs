//! Scale: many objects, long lists, many watchers, large applies.

use crate::{
    api_load::run_concurrently,
    client::Api,
    podium::Podium,
    report::{ms, percentile},
};
use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Number of stored objects of 2 KiB.
const OBJECTS: usize = 100_000;
/// Number of Pods in a long list.
const PODS: usize = 30_000;
const WATCHERS: usize = 5_000;
/// Updates per second.
const RATE: u32 = 100;
const UPDATES: usize = 500;
const CLIENTS: usize = 32;

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Measures the memory of a stored object of 2 KiB, and the start time with 100,000 of them.
pub(crate) async fn objects(podium: &mut Podium) -> Result<(String, String)> {
    let empty = podium.restart()?;
    let before = podium.resident()?;
    let api = Api::connect(&podium.kubeconfig(), "objects").await?;
    api.create_namespace().await?;
    let a = api.clone();
    run_concurrently(OBJECTS, CLIENTS, move |i| {
        let a = a.clone();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("o-{i}")},
                            "data": {"v": "x".repeat(1700)}});
        async move { a.call(Method::POST, &a.path("configmaps"), Some(&object)).await.map(drop) }
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let written = podium.resident()?.saturating_sub(before) / OBJECTS as u64;
    let loaded = podium.restart()?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let read = podium.resident()?.saturating_sub(before) / OBJECTS as u64;
    let api = Api::connect(&podium.kubeconfig(), "objects").await?;
    let one: Value =
        serde_json::from_slice(&api.call(Method::GET, &format!("{}/o-77", api.path("configmaps")), None).await?)?;
    let size = one.to_string().len();
    let memory = format!("{written} B after writing, {read} B after loading (of {size} B each)");
    Ok((memory, format!("{} (with an empty store {})", ms(loaded), ms(empty))))
}

/// Measures a LIST of 30,000 Pods, and the server's additional memory.
pub(crate) async fn long_list(podium: &Podium, api: &Api) -> Result<String> {
    let a = api.clone();
    run_concurrently(PODS, CLIENTS, move |i| {
        let a = a.clone();
        async move { a.call(Method::POST, &a.path("pods"), Some(&crate::api_load::gated_pod(i))).await.map(drop) }
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (mut times, mut size, before) = (Vec::new(), 0, podium.resident()?);
    podium.reset_peak()?;
    for _ in 0..5 {
        let t = Instant::now();
        size = api.size(&api.path("pods")).await?;
        times.push(t.elapsed());
    }
    let peak = podium.peak()?.saturating_sub(before);
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(format!("{} ({} MB); {:.0} MB", ms(percentile(&mut times, 0.5)), size / 1_000_000, megabytes(peak)))
}

/// Measures 100 updates per second with 5,000 watchers of one object each, as of kubelets.
pub(crate) async fn watchers(podium: &Podium, api: &Api) -> Result<String> {
    let (before, name) = (podium.resident()?, |i: usize| format!("w-{i}"));
    let seen = api.watch_each("configmaps", WATCHERS, name).await?;
    let memory = podium.resident()?.saturating_sub(before) / WATCHERS as u64;
    let (cpu, start) = (podium.cpu()?, Instant::now());
    let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
    for i in 0..UPDATES {
        tick.tick().await;
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(i)}, "data": {"a": "b"}});
        api.call(Method::POST, &api.path("configmaps"), Some(&object)).await?;
    }
    while seen.load(Ordering::Relaxed) < UPDATES {
        if start.elapsed() > Duration::from_secs(60) {
            bail!("{} of {UPDATES} events arrived", seen.load(Ordering::Relaxed));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let cores = (podium.cpu()? - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    api.call(Method::DELETE, &api.path("configmaps"), None).await?;
    Ok(format!("{cores:.2} cores, {} KB for each watcher", memory / 1000))
}

/// Measures server-side applies of a Pod with 50 containers, with one changed field each, per second of server CPU time.
pub(crate) async fn applies(podium: &Podium, api: &Api) -> Result<String> {
    let (before, n) = (podium.cpu()?, 2000);
    let a = api.clone();
    run_concurrently(n, CLIENTS, move |i| {
        let a = a.clone();
        async move {
            let path = format!("{}/large-{}?fieldManager=bench", a.path("pods"), i % CLIENTS);
            a.apply(&path, &large_pod(i)).await.map(drop)
        }
    })
    .await?;
    let cpu = (podium.cpu()? - before).as_secs_f64();
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(format!("{:.0}", n as f64 / cpu))
}

fn large_pod(i: usize) -> Value {
    let container = |c: usize| {
        json!({"name": format!("c-{c}"), "image": format!("example.com/image-{c}:1"),
        "imagePullPolicy": "IfNotPresent", "args": ["--a", "--b"], "env": [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}],
        "ports": [{"name": "http", "containerPort": 8000 + c}], "resources": {"requests": {"cpu": "1m"}}})
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("large-{}", i % CLIENTS), "labels": {"i": i.to_string()}},
           "spec": {"schedulingGates": [{"name": "bench/never"}], "containers": (0..50).map(container).collect::<Vec<_>>()}})
}
