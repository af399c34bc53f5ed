//! A watch in the background of a case.

use crate::client::{ApiRequest, Client};
use anyhow::{Result, bail};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use std::time::Duration;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
    time::timeout,
};

/// Event timeout.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// A watch and its received events.
pub(crate) struct Watch {
    events: UnboundedReceiver<Value>,
    reader: AbortHandle,
}

impl Watch {
    /// Opens a watch, which buffers events from then on.
    pub(crate) async fn open(client: &Client, api_request: ApiRequest) -> Result<Self> {
        let response = client.open(api_request).await?;
        if !response.status().is_success() {
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            bail!("the watch was answered with {status}: {}", String::from_utf8_lossy(&body));
        }
        let (sender, events) = unbounded_channel();
        let reader = tokio::spawn(read(response.into_body(), sender)).abort_handle();
        Ok(Self { events, reader })
    }

    /// Returns the next event of a type that is not skipped; `None` after the end of the watch.
    pub(crate) async fn next(&mut self, skip: &[String]) -> Result<Option<Value>> {
        loop {
            let Ok(event) = timeout(EVENT_TIMEOUT, self.events.recv()).await else { bail!("event timeout") };
            match event {
                Some(event) if event["type"].as_str().is_some_and(|t| skip.iter().any(|s| s == t)) => {}
                other => return Ok(other),
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(mut body: Body, sender: UnboundedSender<Value>) {
    let mut line = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        for byte in frame.into_data().unwrap_or_default() {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let event = serde_json::from_slice(&line)
                .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&line).into_owned()));
            line.clear();
            if sender.send(event).is_err() {
                return;
            }
        }
    }
}
