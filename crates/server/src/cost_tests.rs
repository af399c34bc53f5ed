//! Cost of requests: about proportional to the length of their bodies, whatever these contain.
//!
//! The cost is the CPU time of the test's thread, which also runs the server, so that other tests and load hardly affect it. A
//! body is compared with one of a quarter of its length: a quadratic cost is 16 times as high.

mod bodies;
mod objects;
mod pods;

use crate::{rest::large_requests::LargeRequests, test_server};
use std::{sync::Arc, time::Duration};

/// Length of bodies.
const LENGTH: usize = 512 << 10;
/// Acceptable cost of any request, in a debug build on a slow machine.
const ACCEPTABLE_COST: Duration = Duration::from_secs(2);
/// Maximum ratio of the costs of a body and of a quarter of it.
const MAX_COST_RATIO: u32 = 9;

/// Request of a cost test.
pub(super) struct CostRequest {
    method: &'static str,
    path: String,
    content_type: &'static str,
    accept: &'static str,
    body: String,
}

impl CostRequest {
    pub(super) fn new(method: &'static str, path: &str, content_type: &'static str, body: String) -> Self {
        Self { method, path: path.to_owned(), content_type, accept: "application/json", body }
    }

    /// A create in JSON.
    pub(super) fn post(path: &str, body: String) -> Self {
        Self::new("POST", path, "application/json", body)
    }
}

/// Returns requests of which the last one is measured, with bodies of about a given length.
pub(super) type Requests = fn(usize) -> Vec<CostRequest>;

/// Joins generated items by commas, up to a length in bytes.
pub(super) fn list(length: usize, item: impl Fn(usize) -> String) -> String {
    let mut all = String::with_capacity(length + 100);
    for i in 0.. {
        if all.len() >= length {
            break;
        }
        if i > 0 {
            all.push(',');
        }
        all.push_str(&item(i));
    }
    all
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Returns the cost and the status code of the last request; no code if the object is too large for the store, which is checked
/// last.
async fn cost(requests: Requests, length: usize) -> (Duration, Option<u16>) {
    let mut server = test_server::server().await;
    let mut large = LargeRequests::default();
    large.threshold = usize::MAX;
    server.registry.large_requests = Arc::new(large);
    let (mut cost, mut code) = (Duration::ZERO, Some(200));
    for CostRequest { method, path, content_type, accept, body } in requests(length) {
        assert!(code.is_some_and(|code| code < 300), "{path}: the preceding request was answered with {code:?}");
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

/// Checks that the cost of the last request is about proportional to its length, and its status code.
async fn check(name: &str, code: u16, requests: Requests) -> Result<(), String> {
    let mut tries = Vec::new();
    for _ in 0..3 {
        let (whole, got) = cost(requests, LENGTH).await;
        if got.is_some_and(|got| got != code) {
            return Err(format!("{name}: responded with {got:?}, not {code}"));
        }
        if whole < ACCEPTABLE_COST {
            return Ok(());
        }
        let (quarter, _) = cost(requests, LENGTH / 4).await;
        if whole < quarter * MAX_COST_RATIO {
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
async fn cost_of_patches_is_proportional_to_length() {
    check_all(bodies::PATCHES).await;
}

#[tokio::test]
async fn cost_of_apply_is_proportional_to_length() {
    check_all(bodies::APPLIED).await;
}

#[tokio::test]
async fn cost_of_yaml_is_proportional_to_length() {
    check_all(bodies::YAML).await;
}

#[tokio::test]
async fn cost_of_metadata_is_proportional_to_length() {
    check_all(objects::METADATA).await;
}

#[tokio::test]
async fn cost_of_objects_is_proportional_to_length() {
    check_all(objects::OBJECTS).await;
}

#[tokio::test]
async fn cost_of_definitions_is_proportional_to_length() {
    check_all(objects::DEFINITIONS).await;
}

#[tokio::test]
async fn cost_of_pods_is_proportional_to_length() {
    check_all(pods::PODS).await;
}
