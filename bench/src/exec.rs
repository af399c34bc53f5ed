//! `exec` through the API, as kubectl's: a WebSocket with upstream's protocol `v5.channel.k8s.io`.

use crate::{client::Api, report::percentile};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;

const ROUNDS: usize = 30;
/// Channel of the command's status.
const ERROR_CHANNEL: u8 = 3;

/// Measures the p50 latency of `true` in a container: request to status, with a connection of its own.
pub(crate) async fn latency(api: &Api, pod: &str) -> Result<Duration> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run(api, pod, "true").await?;
        times.push(start.elapsed());
    }
    Ok(percentile(&mut times, 0.5))
}

async fn run(api: &Api, pod: &str, command: &str) -> Result<()> {
    let path = format!("{}/{pod}/exec?command={command}&stdout=true&stderr=true", api.path("pods"));
    let mut stream = api.web_socket(&path, "v5.channel.k8s.io").await?;
    loop {
        let mut header = [0; 2];
        stream.read_exact(&mut header).await.context("the status of the command is missing")?;
        let length = match header[1] & 0x7f {
            126 => usize::from(stream.read_u16().await?),
            127 => bail!("a frame of more than 64 KiB"),
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        if let [ERROR_CHANNEL, status @ ..] = payload.as_slice() {
            let status: Value = serde_json::from_slice(status)?;
            if status["status"] != "Success" {
                bail!("exec failed: {status}");
            }
            return Ok(());
        }
    }
}
