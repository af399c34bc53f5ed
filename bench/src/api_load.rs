//! API load: create, get, update, list, and watch fan-out.

use crate::{
    client::Api,
    podium::Podium,
    report::{ms, percentile},
};
use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

fn config_map(i: usize, generation: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("cm-{i}")},
           "data": {"g": generation.to_string(), "v": "x".repeat(1024)}})
}

/// Runs `work` n times with this many clients, and returns the durations and the rate.
pub(crate) async fn run_concurrently<F, Fut>(n: usize, clients: usize, work: F) -> Result<(Vec<Duration>, f64)>
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<()>> + Send,
{
    let (next, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (next, work) = (next.clone(), work.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= n {
                        return Ok::<_, anyhow::Error>(times);
                    }
                    let t = Instant::now();
                    work(i).await?;
                    times.push(t.elapsed());
                }
            })
        })
        .collect();
    let mut all = Vec::with_capacity(n);
    for task in tasks {
        all.extend(task.await??);
    }
    Ok((all, n as f64 / start.elapsed().as_secs_f64()))
}

/// Measures the p50 latency of a create by one client.
pub(crate) async fn one_client(api: &Api) -> Result<String> {
    let a = api.clone();
    let (mut times, _) = run_concurrently(2000, 1, move |i| {
        let a = a.clone();
        async move { a.call(Method::POST, &a.path("configmaps"), Some(&config_map(i, 0))).await.map(drop) }
    })
    .await?;
    api.call(Method::DELETE, &api.path("configmaps"), None).await?;
    Ok(ms(percentile(&mut times, 0.5)))
}

/// Measures the rates of create, get and update with 32 clients.
pub(crate) async fn crud(api: &Api) -> Result<String> {
    let n = 20_000;
    let mut rates = Vec::new();
    for (method, with_name, generation) in
        [(Method::POST, false, Some(0)), (Method::GET, true, None), (Method::PUT, true, Some(1))]
    {
        let a = api.clone();
        let (_, rate) = run_concurrently(n, 32, move |i| {
            let (a, method) = (a.clone(), method.clone());
            async move {
                let path = if with_name { format!("{}/cm-{i}", a.path("configmaps")) } else { a.path("configmaps") };
                let body = generation.map(|g| config_map(i, g));
                a.call(method, &path, body.as_ref()).await.map(drop)
            }
        })
        .await?;
        rates.push(format!("{rate:.0}"));
    }
    api.call(Method::DELETE, &api.path("configmaps"), None).await?;
    Ok(format!("{} per s", rates.join(" / ")))
}

pub(crate) fn gated_pod(i: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p-{i}"), "labels": {"app": "bench"}},
           "spec": {"schedulingGates": [{"name": "bench/never"}], "terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "c", "image": "x", "imagePullPolicy": "IfNotPresent",
                                    "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"]}]}})
}

/// Measures the p50 latency of a LIST of 3,000 Pods, whole and in pages of 500.
pub(crate) async fn list(api: &Api) -> Result<String> {
    let a = api.clone();
    run_concurrently(3000, 32, move |i| {
        let a = a.clone();
        async move { a.call(Method::POST, &a.path("pods"), Some(&gated_pod(i))).await.map(drop) }
    })
    .await?;
    let (mut whole, mut paged, mut size) = (Vec::new(), Vec::new(), 0);
    for _ in 0..7 {
        let t = Instant::now();
        size = api.call(Method::GET, &api.path("pods"), None).await?.len();
        whole.push(t.elapsed());
        let (t, mut token) = (Instant::now(), String::new());
        loop {
            let page = api.call(Method::GET, &format!("{}?limit=500&continue={token}", api.path("pods")), None).await?;
            token = continue_token(&page);
            if token.is_empty() {
                break;
            }
        }
        paged.push(t.elapsed());
    }
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(format!("{} / {} ({} MB)", ms(percentile(&mut whole, 0.5)), ms(percentile(&mut paged, 0.5)), size / 1_000_000))
}

/// Extracts the continue token without parsing 1 MB of items, which would add client time.
fn continue_token(page: &[u8]) -> String {
    let (from, marker) = (&page[..page.len().min(4096)], b"\"continue\":\"");
    let tail = &page[page.len().saturating_sub(4096)..];
    [from, tail]
        .into_iter()
        .find_map(|part| {
            let at = part.windows(marker.len()).position(|w| w == marker)? + marker.len();
            let end = part[at..].iter().position(|b| *b == b'"')? + at;
            Some(String::from_utf8_lossy(&part[at..end]).into_owned())
        })
        .unwrap_or_default()
}

/// Measures the delivery of 300 updates to 200 watchers, and the server's CPU time.
pub(crate) async fn watch(podium: &Podium, api: &Api) -> Result<String> {
    let (watchers, updates) = (200, 300);
    let path = format!("{}/w", api.path("configmaps"));
    let object = |g: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w"}, "data": {"g": g.to_string(), "v": "x".repeat(1024)}});
    api.call(Method::POST, &api.path("configmaps"), Some(&object(updates))).await?;
    let (tx, mut rx) = mpsc::unbounded_channel();
    for _ in 0..watchers {
        let (mut events, tx) = (api.watch("configmaps").await?, tx.clone());
        tokio::spawn(async move {
            while let Some((at, event)) = events.recv().await {
                if let Some(g) = event["object"]["data"]["g"].as_str().and_then(|g| g.parse::<usize>().ok()) {
                    let _ = tx.send((g, at));
                }
            }
        });
    }
    let (before, mut sent) = (podium.cpu()?, HashMap::new());
    for g in 0..updates {
        sent.insert(g, Instant::now());
        api.call(Method::PUT, &path, Some(&object(g))).await?;
    }
    let mut delays = Vec::with_capacity(watchers * updates);
    while delays.len() < watchers * updates {
        let Ok(Some((g, at))) = tokio::time::timeout(Duration::from_secs(10), rx.recv()).await else {
            bail!("{} of {} events were lost", watchers * updates - delays.len(), watchers * updates);
        };
        delays.push(at.duration_since(sent[&g]));
    }
    let cpu = podium.cpu()? - before;
    Ok(format!(
        "{} / {}; {:.2} s",
        ms(percentile(&mut delays, 0.5)),
        ms(percentile(&mut delays, 0.99)),
        cpu.as_secs_f64()
    ))
}
