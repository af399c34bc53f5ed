//! Latency of status updates after container exits and probe results.

use crate::{
    client::{Api, WatchEvent},
    podium::Podium,
    pods::{is_ready, wait},
    report::{ms, percentile},
};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, sync::mpsc::UnboundedReceiver};

const ROUNDS: usize = 10;
/// Polling interval for the end of a process.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

fn pod(name: &str, probe: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
           "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "c", "image": test_images::BUSYBOX, "imagePullPolicy": "IfNotPresent",
                                    "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"]}]}});
    if let Some(probe) = probe.as_object() {
        for (name, probe) in probe {
            pod["spec"]["containers"][0][name] = probe.clone();
        }
    }
    pod
}

/// Returns the first process of a Pod's container.
fn process(podium: &Podium, object: &Value) -> Result<Pid> {
    let id = object["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or("");
    let id = id.split_once("://").context("no container ID")?.1;
    let task = PathBuf::from("containerd/state/io.containerd.runtime.v2.task/k8s.io").join(id).join("init.pid");
    let path = podium.data_dir().join(task);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(Pid::from_raw(text.trim().parse()?))
}

fn runs(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn ready(events: &mut UnboundedReceiver<WatchEvent>, name: &str) -> Result<Value> {
    let mut found = Value::Null;
    wait(events, name, |event| {
        let ready = is_ready(&event["object"]);
        if ready {
            found = event["object"].clone();
        }
        ready
    })
    .await?;
    Ok(found)
}

/// Returns whether the shell of [`pod`] waits for its child. Its trap is set then; earlier signals may be lost.
fn waits(shell: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{shell}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let caught = u64::from_str_radix(field("SigCgt:"), 16).unwrap_or(0);
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap_or_default();
    let traps = caught & 1 << (Signal::SIGTERM as u32 - 1) != 0;
    traps && !children.trim().is_empty() && field("State:").starts_with('S')
}

async fn until(description: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        if Instant::now() > deadline {
            bail!("timeout: {description}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Measures the time from a signal to a container's first process until a watch shows the exit.
pub(crate) async fn exit_to_status(podium: &Podium, api: &Api, signal: Signal) -> Result<String> {
    let mut events = api.watch("pods").await?;
    let mut times = Vec::new();
    for i in 0..ROUNDS {
        let name = format!("exit-{}-{i}", signal as i32);
        api.call(Method::POST, &api.path("pods"), Some(&pod(&name, &Value::Null))).await?;
        let process = process(podium, &ready(&mut events, &name).await?)?;
        until("the shell waits", || waits(process)).await?;
        let killed = Instant::now();
        kill(process, signal)?;
        let ended = |e: &Value| !e["object"]["status"]["containerStatuses"][0]["state"]["terminated"].is_null();
        times.push(wait(&mut events, &name, ended).await?.duration_since(killed));
    }
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(ms(percentile(&mut times, 0.5)))
}

/// A probe target: an HTTP server on loopback with a switchable health, which records its first response after a change.
struct ProbeTarget {
    port: u16,
    healthy: Arc<AtomicBool>,
    first_response: Arc<Mutex<Option<Instant>>>,
}

impl ProbeTarget {
    async fn start(healthy: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let target = Self { port, healthy: Arc::new(AtomicBool::new(healthy)), first_response: Arc::default() };
        let (healthy, first_response) = (target.healthy.clone(), target.first_response.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (healthy, first_response) = (healthy.clone(), first_response.clone());
                let service = service_fn(move |_| {
                    let code =
                        if healthy.load(Ordering::SeqCst) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                    let mut response = Response::new(Full::new(Bytes::new()));
                    *response.status_mut() = code;
                    first_response.lock().get_or_insert_with(Instant::now);
                    std::future::ready(Ok::<_, Infallible>(response))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(target)
    }

    /// Switches the health and clears the recorded response.
    fn set(&self, healthy: bool) {
        self.healthy.store(healthy, Ordering::SeqCst);
        *self.first_response.lock() = None;
    }

    fn first_response(&self) -> Result<Instant> {
        self.first_response.lock().context("no probe received")
    }

    fn probe(&self, name: &str) -> Value {
        let probe =
            json!({"httpGet": {"host": "127.0.0.1", "port": self.port}, "periodSeconds": 1, "failureThreshold": 1});
        json!({ name: probe })
    }
}

/// Measures the time from the response to a readiness probe until a watch shows the Pod Ready.
pub(crate) async fn success_to_ready(api: &Api) -> Result<String> {
    let mut events = api.watch("pods").await?;
    let mut times = Vec::new();
    for i in 0..ROUNDS {
        let (name, target) = (format!("ready-{i}"), ProbeTarget::start(false).await?);
        api.call(Method::POST, &api.path("pods"), Some(&pod(&name, &target.probe("readinessProbe")))).await?;
        let running = |e: &Value| !e["object"]["status"]["containerStatuses"][0]["state"]["running"].is_null();
        wait(&mut events, &name, running).await?;
        target.set(true);
        let seen = wait(&mut events, &name, |e| is_ready(&e["object"])).await?;
        times.push(seen.saturating_duration_since(target.first_response()?));
    }
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(ms(percentile(&mut times, 0.5)))
}

/// Measures the time from the response to a liveness probe until the container has exited on SIGTERM.
pub(crate) async fn failure_to_kill(podium: &Podium, api: &Api) -> Result<String> {
    let mut events = api.watch("pods").await?;
    let mut times = Vec::new();
    for i in 0..ROUNDS {
        let (name, target) = (format!("live-{i}"), ProbeTarget::start(true).await?);
        api.call(Method::POST, &api.path("pods"), Some(&pod(&name, &target.probe("livenessProbe")))).await?;
        let process = process(podium, &ready(&mut events, &name).await?)?;
        // Ready means that the shell runs; its trap may not be set.
        until("the shell waits", || waits(process)).await?;
        target.set(false);
        until("the container is killed", || !runs(process)).await?;
        times.push(target.first_response()?.elapsed());
    }
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(ms(percentile(&mut times, 0.5)))
}
