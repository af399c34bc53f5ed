//! `podium run` of a Pod: start of the program to the reported exit of the command.

use crate::{
    podium::{Podium, binary},
    report::percentile,
};
use anyhow::{Context, Result};
use serde_json::json;
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const ROUNDS: usize = 5;

/// Measures the p50 latency. The runtime has the image.
pub(crate) fn latency(podium: &Podium) -> Result<Duration> {
    let dir = tempfile::tempdir()?;
    let manifest = dir.path().join("pod.json");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "once"},
                     "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                              "containers": [{"name": "c", "image": test_images::BUSYBOX,
                                              "imagePullPolicy": "IfNotPresent", "command": ["true"]}]}});
    std::fs::write(&manifest, pod.to_string())?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut command = Command::new(binary()?);
        command.arg("run").arg(&manifest);
        command.args(podium.runtime_args());
        let start = Instant::now();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut exited = None;
        for line in BufReader::new(child.stdout.take().context("stdout is piped")?).lines() {
            if line?.contains("exited with code 0") {
                exited.get_or_insert_with(|| start.elapsed());
            }
        }
        let status = child.wait()?;
        times.push(exited.with_context(|| format!("podium run ended with {status}, and the Pod did not"))?);
    }
    Ok(percentile(&mut times, 0.5))
}
