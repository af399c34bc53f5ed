//! 10,000 malformed requests: none gets a 500 response, and memory is bounded.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests panic on failure")]
#![allow(clippy::print_stdout, reason = "the test prints a summary")]

#[cfg(test)]
#[path = "http/common.rs"]
#[allow(dead_code, reason = "shared with the other tests of the API")]
mod common;
#[cfg(test)]
#[path = "malformed/defined.rs"]
mod defined;
#[cfg(test)]
#[path = "malformed/generate.rs"]
mod generate;
#[cfg(test)]
#[path = "malformed/samples.rs"]
mod samples;

use bytes::Bytes;
use common::TestApi;
use generate::{MalformedRequest, RequestGenerator};
use http::Request;
use http_body_util::{BodyExt, Full};
use request::UserInfo;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// Number of requests.
const REQUESTS: usize = 10_000;
/// Maximum growth of memory, in KiB: the store's event window, one large response, and the allocator's overhead.
const MAX_MEMORY_GROWTH: u64 = 384 << 10;
/// Timeout of each response.
const DEADLINE: Duration = Duration::from_secs(60);
/// Expected status codes: success and client errors.
const EXPECTED_CODES: [u16; 12] = [200, 201, 400, 404, 405, 406, 409, 410, 413, 415, 422, 504];

/// Returns the peak resident memory of this process, in KiB.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends a request and returns the status code, or `None` if no HTTP client could send it.
async fn send(api: &TestApi, number: usize, malformed: &MalformedRequest) -> Option<u16> {
    let mut request = Request::builder().method(malformed.method.as_str()).uri(&malformed.target);
    for (name, value) in &malformed.headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(Bytes::from(malformed.body.clone()))).ok()?;
    let response = api.server.handle(Some(UserInfo::component("fuzz")), request).await;
    let (head, body) = response.into_parts();
    let code = head.status.as_u16();
    // A watch does not end.
    if code == 200 && malformed.target.contains("watch") {
        return Some(code);
    }
    let returned = || {
        let body = String::from_utf8_lossy(&malformed.body).chars().take(2000).collect::<String>();
        format!("request {number}: {} {} {:?}\n{body}", malformed.method, malformed.target, malformed.headers)
    };
    let bytes = tokio::time::timeout(DEADLINE, body.collect()).await.unwrap().unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    assert!(EXPECTED_CODES.contains(&code), "{code} {status}\n{}", returned());
    if malformed.method == "HEAD" {
        assert!(bytes.is_empty(), "{code} {}\n{}", String::from_utf8_lossy(&bytes), returned());
    } else if code >= 400 {
        let text = |field: &str| status[field].as_str().unwrap_or("");
        let proper = status["code"] == json!(code)
            && text("kind") == "Status"
            && text("status") == "Failure"
            && !text("reason").is_empty()
            && !text("message").is_empty();
        assert!(proper, "{code} {}\n{}", String::from_utf8_lossy(&bytes), returned());
    }
    Some(code)
}

#[tokio::test]
async fn malformed_requests_get_no_internal_errors() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    api.create_config_map("a", json!({})).await;
    api.check(common::post(defined::DEFINITIONS, &defined::definition("widgets")), 201, json!({})).await;
    let before = peak_memory_kib();
    let mut generator = RequestGenerator::new(0x5EED);
    let mut codes: BTreeMap<u16, usize> = BTreeMap::new();
    let (mut sent, mut typed) = (0, generator.wrong_types().into_iter());
    while sent < REQUESTS {
        let malformed = typed.next().unwrap_or_else(|| generator.any_request());
        if let Some(code) = send(&api, sent, &malformed).await {
            sent += 1;
            *codes.entry(code).or_default() += 1;
        }
    }
    let grown = peak_memory_kib() - before;
    println!("{sent} requests, answers by code: {codes:?}; memory grew by {} MiB", grown >> 10);
    assert!(grown < MAX_MEMORY_GROWTH, "memory grew by {} MiB", grown >> 10);
    // The requests were diverse, and the server works.
    assert!([400, 404, 405, 413, 415, 422].iter().all(|code| codes.contains_key(code)), "{codes:?}");
    api.check(common::get("/api/v1/namespaces/kube-system"), 200, json!({"status": {"phase": "Active"}})).await;
    api.check(common::post(common::PODS, &common::pod("after")), 201, json!({})).await;
}
