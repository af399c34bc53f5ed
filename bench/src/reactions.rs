//! How soon Podium reacts: to a container's end, to a probe's success, to a probe's failure.

use crate::{
    client::{Api, Arrival},
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
/// How often the end of a process is looked for.
const LOOK: Duration = Duration::from_micros(500);

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

/// The first process of a Pod's container, from the object that shows it.
fn process(podium: &Podium, object: &Value) -> Result<Pid> {
    let id = object["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or("");
    let id = id.strip_prefix("containerd://").context("no container ID")?;
    let task = PathBuf::from("containerd/state/io.containerd.runtime.v2.task/k8s.io").join(id).join("init.pid");
    let path = podium.data_dir().join(task);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(Pid::from_raw(text.trim().parse()?))
}

fn runs(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn ready(events: &mut UnboundedReceiver<Arrival>, name: &str) -> Result<Value> {
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

/// Whether the shell of [`pod`] waits for its child, with its trap set: what comes before that may be lost on it.
fn waits(shell: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{shell}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let caught = u64::from_str_radix(field("SigCgt:"), 16).unwrap_or(0);
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap_or_default();
    let traps = caught & 1 << (Signal::SIGTERM as u32 - 1) != 0;
    traps && !children.trim().is_empty() && field("State:").starts_with('S')
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        if Instant::now() > deadline {
            bail!("never came true: {what}");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// From a signal to a container's first process until a watch shows the end. It exits with 0 on SIGTERM.
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

/// An HTTP server on loopback that is well or not, and knows when it last said what it is for the first time.
struct Patient {
    port: u16,
    well: Arc<AtomicBool>,
    told: Arc<Mutex<Option<Instant>>>,
}

impl Patient {
    async fn start(well: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let patient = Self { port, well: Arc::new(AtomicBool::new(well)), told: Arc::default() };
        let (well, told) = (patient.well.clone(), patient.told.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (well, told) = (well.clone(), told.clone());
                let service = service_fn(move |_| {
                    let code =
                        if well.load(Ordering::SeqCst) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                    let mut response = Response::new(Full::new(Bytes::new()));
                    *response.status_mut() = code;
                    told.lock().get_or_insert_with(Instant::now);
                    std::future::ready(Ok::<_, Infallible>(response))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(patient)
    }

    /// Changes; whoever asks next is told for the first time.
    fn set(&self, well: bool) {
        self.well.store(well, Ordering::SeqCst);
        *self.told.lock() = None;
    }

    fn told(&self) -> Result<Instant> {
        self.told.lock().context("nobody has asked")
    }

    fn probe(&self, name: &str) -> Value {
        let probe =
            json!({"httpGet": {"host": "127.0.0.1", "port": self.port}, "periodSeconds": 1, "failureThreshold": 1});
        json!({ name: probe })
    }
}

/// From the answer to a readiness probe until a watch shows the Pod Ready.
pub(crate) async fn success_to_ready(api: &Api) -> Result<String> {
    let mut events = api.watch("pods").await?;
    let mut times = Vec::new();
    for i in 0..ROUNDS {
        let (name, patient) = (format!("ready-{i}"), Patient::start(false).await?);
        api.call(Method::POST, &api.path("pods"), Some(&pod(&name, &patient.probe("readinessProbe")))).await?;
        let running = |e: &Value| !e["object"]["status"]["containerStatuses"][0]["state"]["running"].is_null();
        wait(&mut events, &name, running).await?;
        patient.set(true);
        let seen = wait(&mut events, &name, |e| is_ready(&e["object"])).await?;
        times.push(seen.saturating_duration_since(patient.told()?));
    }
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(ms(percentile(&mut times, 0.5)))
}

/// From the answer to a liveness probe until the container, which ends on SIGTERM, has ended.
pub(crate) async fn failure_to_kill(podium: &Podium, api: &Api) -> Result<String> {
    let mut events = api.watch("pods").await?;
    let mut times = Vec::new();
    for i in 0..ROUNDS {
        let (name, patient) = (format!("live-{i}"), Patient::start(true).await?);
        api.call(Method::POST, &api.path("pods"), Some(&pod(&name, &patient.probe("livenessProbe")))).await?;
        let process = process(podium, &ready(&mut events, &name).await?)?;
        // Ready only says that the shell runs.
        until("the shell waits", || waits(process)).await?;
        patient.set(false);
        until("the container is killed", || !runs(process)).await?;
        times.push(patient.told()?.elapsed());
    }
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(ms(percentile(&mut times, 0.5)))
}
