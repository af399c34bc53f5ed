//! API fuzzer: sends valid and invalid requests for every operation in a server's OpenAPI documents.
//!
//! Faults are: a status of 500 or more that upstream does not document (`response_check.rs`), an error that is not a
//! `Status`, a closed connection, a response after more than 10 s, and a panic in the server's log. The same seed gives
//! the same requests in each stream, but not the same interleaving of streams. Harmful requests are not sent (`safety.rs`).
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line program talks to people on stdout")]

mod client;
mod document;
mod generate;
mod mutate;
mod patch;
mod query;
mod report;
mod request;
mod response_check;
mod rng;
mod safety;
mod seeds;
mod values;

use anyhow::{Context, Result, bail};
use clap::Parser;
use client::{ApiRequest, Client};
use document::{Api, Operation};
use report::Report;
use request::Requests;
use rng::SeededRng;
use seeds::Seeds;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

#[derive(Parser)]
#[command(about = "API fuzzer driven by the server's OpenAPI documents")]
struct Cli {
    /// Kubeconfig of the server. The user must be a cluster administrator. All objects may be lost.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// The server's log, which is checked for panics.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Duration in seconds.
    #[arg(long, default_value_t = 900)]
    seconds: u64,
    /// Seed of the random generator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of parallel streams, each with its own random generator.
    #[arg(long, default_value_t = 4)]
    streams: u64,
    /// The directory of valid objects.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/kinds"))]
    objects: PathBuf,
    /// Only operations whose method and path contain this.
    #[arg(long)]
    only: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    let client = Client::of(&cli.kubeconfig).await?;
    let seeds = Seeds::read(&cli.objects)?;
    prepare(&client).await?;
    let mut api = Api::of(&client).await?;
    let is_selected = |o: &Operation| cli.only.as_ref().is_none_or(|only| o.title().contains(only));
    api.operations.retain(|o| safety::may(o) && is_selected(o));
    println!("seed {}: {} operations, {} s", cli.seed, api.operations.len(), cli.seconds);
    let report = Report::default();
    let requests = Requests { api: &api, seeds: &seeds };
    let end = Instant::now() + Duration::from_secs(cli.seconds);
    let streams = (0..cli.streams).map(|stream| send_stream(&client, &requests, cli.seed, stream, end, &report));
    futures::future::join_all(streams).await;
    report.print();
    if let Some(log) = &cli.log {
        no_panic(log)?;
    }
    report.result(api.operations.len())
}

/// Creates the namespace and the custom kind of the requests. A quota limits Pods, because a request may have 2147483647
/// replicas.
async fn prepare(client: &Client) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": values::HOME}});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": {"hard": {"pods": "300"}}});
    let quotas = format!("/api/v1/namespaces/{}/resourcequotas", values::HOME);
    let all = [("/api/v1/namespaces", namespace), (&quotas, quota), (seeds::DEFINITIONS, seeds::definition())];
    for (path, object) in all {
        let response = client.send(&posted(path, &object)).await?;
        if ![201, 409].contains(&response.status) {
            bail!("{path}: {} {}", response.status, String::from_utf8_lossy(&response.body));
        }
    }
    Ok(())
}

fn posted(path: &str, object: &Value) -> ApiRequest {
    ApiRequest {
        method: "POST",
        path: path.to_owned(),
        headers: vec![("content-type", b"application/json".to_vec())],
        body: object.to_string().into(),
        watches: false,
    }
}

/// Sends a stream of requests one after another.
async fn send_stream(client: &Client, requests: &Requests<'_>, seed: u64, stream: u64, end: Instant, report: &Report) {
    let mut rng = SeededRng::new(seed.wrapping_mul(1000).wrapping_add(stream));
    // Round-robin instead of random operations, so that a short run covers every operation.
    let mut index = rng.below(requests.api.operations.len());
    while Instant::now() < end && !report.is_hopeless() {
        index = (index + 1 + rng.below(7)) % requests.api.operations.len();
        let operation = &requests.api.operations[index];
        // Objects must live for a while to be changed.
        if operation.method == "DELETE" && rng.chance(75) {
            continue;
        }
        let Some(api_request) = requests.of(&mut rng, operation) else { continue };
        let fault = match client.send(&api_request).await {
            Ok(response) => {
                report.answered(operation, response.status);
                response_check::fault(&api_request, &response)
            }
            Err(error) => Some(format!("{error:#}")),
        };
        if let Some(fault) = fault {
            report.fault(operation, &api_request, &fault);
        }
    }
}

/// Checks the server's log for panics.
fn no_panic(log: &Path) -> Result<()> {
    let text = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
    match text.lines().position(|line| line.contains("panicked at") || line.contains("stack overflow")) {
        None => Ok(()),
        Some(at) => bail!("the server panicked:\n{}", text.lines().skip(at).take(12).collect::<Vec<_>>().join("\n")),
    }
}
