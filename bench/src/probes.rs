//! CPU time of many probes, of Podium and of everything that it starts.

use crate::{client::Api, podium::Podium, pods::is_ready};
use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::{
    fmt, fs,
    path::Path,
    time::{Duration, Instant},
};

const PODS: usize = 100;
/// Duration of the measurement.
const WINDOW: Duration = Duration::from_secs(30);
const READY_TIMEOUT: Duration = Duration::from_secs(180);

/// Returns a Pod whose probe appends a byte to a file of the node.
fn pod(i: usize, marks: &Path) -> Value {
    let probe = json!({"exec": {"command": ["sh", "-c", "echo >> /marks/$HOSTNAME"]}, "periodSeconds": 1, "timeoutSeconds": 10});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("probed-{i}")}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "marks", "hostPath": {"path": marks}}],
        "containers": [{"name": "c", "image": test_images::BUSYBOX, "imagePullPolicy": "IfNotPresent",
                        "command": ["sleep", "100000"], "readinessProbe": probe,
                        "volumeMounts": [{"name": "marks", "mountPath": "/marks"}]}]}})
}

/// Counts the probes so far.
fn count(marks: &Path) -> Result<u64> {
    fs::read_dir(marks)?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.len()))
}

/// Results of [`exec`].
pub(crate) struct Probes {
    /// Probes per second.
    pub(crate) rate: f64,
    /// Busy cores: Podium alone, and with its runtime and the probes.
    pub(crate) podium: f64,
    pub(crate) all: f64,
}

impl Probes {
    /// CPU time of one probe, with Podium's and the runtime's.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::try_from_secs_f64(self.all / self.rate).unwrap_or_default()
    }
}

impl fmt::Display for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, podium, all } = self;
        let cpu = self.cpu().as_secs_f64() * 1e3;
        write!(f, "{rate:.0} probes per s; Podium {podium:.3} of {all:.2} busy cores; {cpu:.1} ms of CPU for each")
    }
}

/// Measures 100 Pods with an exec probe every second.
pub(crate) async fn exec(podium: &Podium, api: &Api) -> Result<Probes> {
    let marks = podium.data_dir().join("marks");
    fs::create_dir_all(&marks)?;
    for i in 0..PODS {
        api.call(Method::POST, &api.path("pods"), Some(&pod(i, &marks))).await?;
    }
    let begun = Instant::now();
    loop {
        let list: Value = serde_json::from_slice(&api.call(Method::GET, &api.path("pods"), None).await?)?;
        let ready = list["items"].as_array().into_iter().flatten().filter(|pod| is_ready(pod)).count();
        if ready == PODS {
            break;
        }
        if begun.elapsed() > READY_TIMEOUT {
            bail!("{ready} of {PODS} Pods are ready");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (probes, cpu, all, start) = (count(&marks)?, podium.cpu()?, podium.group.cpu()?, Instant::now());
    tokio::time::sleep(WINDOW).await;
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = (count(&marks)? - probes) as f64 / seconds;
    let (cpu, all) =
        ((podium.cpu()? - cpu).as_secs_f64() / seconds, (podium.group.cpu()? - all).as_secs_f64() / seconds);
    api.call(Method::DELETE, &format!("{}?gracePeriodSeconds=0", api.path("pods")), None).await?;
    Ok(Probes { rate, podium: cpu, all })
}
