//! What requests cost, whatever their bodies hold: about as much as these are long.
//!
//! Costs are processor time of the test's thread, on which the server answers here, so other tests and a busy machine change
//! them little. A body is compared with one of a quarter of its length: what costs n² takes 16 times as long.

mod bodies;
mod objects;
mod pods;

use crate::{ApiServer, large_requests::LargeRequests, test_server};
use std::{sync::Arc, time::Duration};

/// Length of bodies.
const LENGTH: usize = 512 << 10;
/// What is never too much, in a debug build on a slow machine.
const LITTLE: Duration = Duration::from_secs(2);
/// How much more a body may cost than a quarter of it.
const FACTOR: u32 = 9;

/// A request.
pub(super) struct Sent {
    method: &'static str,
    path: String,
    content_type: &'static str,
    accept: &'static str,
    body: String,
}

impl Sent {
    pub(super) fn new(method: &'static str, path: &str, content_type: &'static str, body: String) -> Self {
        Self { method, path: path.to_owned(), content_type, accept: "application/json", body }
    }

    /// A create in JSON.
    pub(super) fn post(path: &str, body: String) -> Self {
        Self::new("POST", path, "application/json", body)
    }
}

/// Requests of which the last one is measured, with a body of about this length.
pub(super) type Requests = fn(usize) -> Vec<Sent>;

/// Texts, one for each number, until they take this many bytes; joined by commas.
pub(super) fn list(length: usize, one: impl Fn(usize) -> String) -> String {
    let mut all = String::with_capacity(length + 100);
    for i in 0.. {
        if all.len() >= length {
            break;
        }
        if i > 0 {
            all.push(',');
        }
        all.push_str(&one(i));
    }
    all
}

/// Processor time of this thread so far.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// What the last of some requests costs, and how it was answered; `None` when the object was only too large to be stored,
/// which is found last.
async fn cost(requests: Requests, length: usize) -> (Duration, Option<u16>) {
    let server = test_server::server().await;
    let mut large = LargeRequests::default();
    large.threshold = usize::MAX;
    let server = ApiServer { large_requests: Arc::new(large), ..server };
    let (mut cost, mut code) = (Duration::ZERO, Some(200));
    for Sent { method, path, content_type, accept, body } in requests(length) {
        assert!(code.is_some_and(|code| code < 300), "{path}: the request before was answered with {code:?}");
        assert!(body.len() < 2 * length + 4096, "{path}: {} bytes", body.len());
        let before = cpu_time();
        let headers = [("content-type", content_type), ("accept", accept)];
        let answer = test_server::send(&server, method, &path, &headers, body.as_bytes()).await;
        let is_too_large = answer.code == 500 && answer.json()["message"] == "etcdserver: request is too large";
        (cost, code) = (cpu_time() - before, (!is_too_large).then_some(answer.code));
        assert!(answer.body.len() < 16 * length + (8 << 20), "{path}: an answer of {} bytes", answer.body.len());
        if std::env::var_os("SHOW_COSTS").is_some() {
            let head = String::from_utf8_lossy(&answer.body).chars().take(300).collect::<String>();
            eprintln!("    {method} {path} {length}: {code:?} {cost:?} {head}");
        }
    }
    (cost, code)
}

/// Checks that the last request costs about as much as it is long, and is answered with this code.
async fn check(name: &str, code: u16, requests: Requests) -> Result<(), String> {
    let mut tries = Vec::new();
    for _ in 0..3 {
        let (whole, answered) = cost(requests, LENGTH).await;
        if answered.is_some_and(|answered| answered != code) {
            return Err(format!("{name}: answered with {answered:?}, not {code}"));
        }
        if whole < LITTLE {
            return Ok(());
        }
        let (quarter, _) = cost(requests, LENGTH / 4).await;
        if whole < quarter * FACTOR {
            return Ok(());
        }
        tries.push((whole, quarter));
    }
    Err(format!("{name}: a body of {LENGTH} bytes, and a quarter of it, cost {tries:?}"))
}

async fn check_all(cases: &[(&str, u16, Requests)]) {
    let mut wrong = Vec::new();
    for (name, code, requests) in cases {
        wrong.extend(check(name, *code, *requests).await.err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn patches_cost_what_their_bodies_hold() {
    check_all(bodies::PATCHES).await;
}

#[tokio::test]
async fn applied_configurations_cost_what_their_bodies_hold() {
    check_all(bodies::APPLIED).await;
}

#[tokio::test]
async fn yaml_costs_what_its_text_holds() {
    check_all(bodies::YAML).await;
}

#[tokio::test]
async fn metadata_costs_what_it_holds() {
    check_all(objects::METADATA).await;
}

#[tokio::test]
async fn objects_cost_what_their_bodies_hold() {
    check_all(objects::OBJECTS).await;
}

#[tokio::test]
async fn definitions_cost_what_their_schemas_hold() {
    check_all(objects::DEFINITIONS).await;
}

#[tokio::test]
async fn pods_cost_what_their_lists_hold() {
    check_all(pods::PODS).await;
}
