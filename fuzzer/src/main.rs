//! Asks a server, any that a kubeconfig leads to, for everything that its OpenAPI documents say, right and wrong.
//!
//! A fault is: an answer of 500 and more that upstream does not document (`response_check.rs`), an error that is no `Status`, a
//! connection that ends, an answer later than 10 s, and a panic in the server's log. The same seed makes the same requests
//! in each of the streams; what the others do meanwhile is not the same. What could do harm is not asked (`safety.rs`).
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
use client::{Client, Sent};
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
#[command(about = "Requests that no client should send, made from the OpenAPI documents that a server publishes")]
struct Cli {
    /// The server and who asks it; that user must be allowed everything. Its objects may all be lost.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// The server's log: a panic there is a fault.
    #[arg(long)]
    log: Option<PathBuf>,
    /// How long to ask.
    #[arg(long, default_value_t = 900)]
    seconds: u64,
    /// Where chance begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many ask at once, each with chances of its own.
    #[arg(long, default_value_t = 4)]
    streams: u64,
    /// Where valid objects are.
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
    let wanted = |o: &Operation| cli.only.as_ref().is_none_or(|only| o.title().contains(only));
    api.operations.retain(|o| safety::may(o) && wanted(o));
    println!("seed {}: {} operations, {} s", cli.seed, api.operations.len(), cli.seconds);
    let report = Report::default();
    let requests = Requests { api: &api, seeds: &seeds };
    let end = Instant::now() + Duration::from_secs(cli.seconds);
    let streams = (0..cli.streams).map(|stream| ask(&client, &requests, cli.seed, stream, end, &report));
    futures::future::join_all(streams).await;
    report.print();
    if let Some(log) = &cli.log {
        no_panic(log)?;
    }
    report.verdict(api.operations.len())
}

/// The namespace and the custom kind that the requests are about. Whoever asks for 2147483647 replicas gets no more Pods
/// than the namespace's quota has.
async fn prepare(client: &Client) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": values::HOME}});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": {"hard": {"pods": "300"}}});
    let quotas = format!("/api/v1/namespaces/{}/resourcequotas", values::HOME);
    let all = [("/api/v1/namespaces", namespace), (&quotas, quota), (seeds::DEFINITIONS, seeds::definition())];
    for (path, object) in all {
        let answer = client.ask(&posted(path, &object)).await?;
        if ![201, 409].contains(&answer.status) {
            bail!("{path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
    }
    Ok(())
}

fn posted(path: &str, object: &Value) -> Sent {
    Sent {
        method: "POST",
        path: path.to_owned(),
        headers: vec![("content-type", b"application/json".to_vec())],
        body: object.to_string().into(),
        watches: false,
    }
}

/// One stream of requests, one after the other.
async fn ask(client: &Client, requests: &Requests<'_>, seed: u64, stream: u64, end: Instant, report: &Report) {
    let mut rng = SeededRng::new(seed.wrapping_mul(1000).wrapping_add(stream));
    // Steps instead of throws: so even a short run meets every operation.
    let mut place = rng.below(requests.api.operations.len());
    while Instant::now() < end && !report.is_hopeless() {
        place = (place + 1 + rng.below(7)) % requests.api.operations.len();
        let operation = &requests.api.operations[place];
        // What is always deleted at once can never be changed.
        if operation.method == "DELETE" && rng.chance(75) {
            continue;
        }
        let Some(sent) = requests.of(&mut rng, operation) else { continue };
        let fault = match client.ask(&sent).await {
            Ok(answer) => {
                report.answered(operation, answer.status);
                response_check::fault(&sent, &answer)
            }
            Err(error) => Some(format!("{error:#}")),
        };
        if let Some(fault) = fault {
            report.fault(operation, &sent, &fault);
        }
    }
}

/// A panic is a fault even where an answer came.
fn no_panic(log: &Path) -> Result<()> {
    let text = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
    match text.lines().position(|line| line.contains("panicked at") || line.contains("stack overflow")) {
        None => Ok(()),
        Some(at) => bail!("the server panicked:\n{}", text.lines().skip(at).take(12).collect::<Vec<_>>().join("\n")),
    }
}
