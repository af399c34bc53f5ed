//! Probe handlers: `exec`, `httpGet`, `tcpSocket` and `grpc`, with upstream's outcomes and messages (`pkg/probe`).
//!
//! A handler executes one probe. `actions/prober.rs` selects it (`prober.runProbe`). `lifecycle` schedules probes and
//! decides their results by the thresholds (`worker.doProbe`, `crates/lifecycle/src/probe_worker.rs`).

pub(crate) mod exec;
mod go_http_errors;
pub(crate) mod grpc;
pub(crate) mod http;
mod http2_settings;
pub(crate) mod metrics;
pub(crate) mod tcp;
mod tls;
mod url;
mod write_first;

use k8s_openapi::{api::core::v1::Container, apimachinery::pkg::util::intstr::IntOrString};
use std::num::IntErrorKind;
use tokio::time::{Instant, error::Elapsed, timeout_at};

/// Limit of kept output and response bodies in bytes (upstream's `maxReadLength` and `maxRespBodyLength`).
const MAX_OUTPUT: usize = 10 << 10;

/// Kubernetes version in the `User-Agent` of probes and hooks.
pub(crate) const USER_AGENT_VERSION: &str = "1.35";

/// Invalid port of a probe or a hook, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    #[error("invalid port number: {0}")]
    InvalidNumber(i64),
    /// The container has no port of this name, and the name is not a number.
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    Syntax(String),
    #[error("strconv.Atoi: parsing {0:?}: value out of range")]
    Range(String),
}

/// Resolves a port number or the name of a container port (upstream's `ResolveContainerPort`).
pub(crate) fn resolve_port(port: &IntOrString, container: &Container) -> Result<u16, PortError> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|p| p.name.as_deref() == Some(name));
            // Upstream falls back to parsing the name as a number, and returns that error.
            named.map_or_else(|| parse_int(name), |port| Ok(i64::from(port.container_port)))?
        }
    };
    u16::try_from(number).ok().filter(|n| *n > 0).ok_or(PortError::InvalidNumber(number))
}

/// Parses an integer with the errors of Go's `strconv.Atoi`.
fn parse_int(text: &str) -> Result<i64, PortError> {
    text.parse::<i64>().map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => PortError::Range(text.to_owned()),
        _ => PortError::Syntax(text.to_owned()),
    })
}

/// Formats `host:port`, an IPv6 address in brackets (Go's `net.JoinHostPort`).
fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns the first [`MAX_OUTPUT`] bytes of an output as text.
fn truncated_output(output: &[u8]) -> String {
    String::from_utf8_lossy(output.get(..MAX_OUTPUT).unwrap_or(output)).into_owned()
}

/// Awaits a future until the deadline, if there is one.
async fn with_deadline<F: Future>(deadline: Option<Instant>, future: F) -> Result<F::Output, Elapsed> {
    match deadline {
        Some(deadline) => timeout_at(deadline, future).await,
        None => Ok(future.await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(port: &Value, expected: Result<u16, &str>) {
        let ports = json!([{"containerPort": 53}, {"name": "web", "containerPort": 8080, "hostPort": 80}]);
        let container = serde_json::from_value(json!({"name": "c", "ports": ports})).expect("a container");
        let found = resolve_port(&serde_json::from_value(port.clone()).expect("a port"), &container);
        assert_eq!(found.map_err(|e| e.to_string()), expected.map_err(str::to_owned), "{port}");
    }

    #[test]
    fn port_number_or_container_port_name_is_resolved() {
        check(&json!(80), Ok(80));
        check(&json!("web"), Ok(8080));
        check(&json!("80"), Ok(80));
        check(&json!("65536"), Err("invalid port number: 65536"));
        let large = "99999999999999999999";
        check(&json!(large), Err(&format!("strconv.Atoi: parsing {large:?}: value out of range")));
        check(&json!("dns"), Err("strconv.Atoi: parsing \"dns\": invalid syntax"));
        check(&json!(0), Err("invalid port number: 0"));
        check(&json!(65536), Err("invalid port number: 65536"));
    }

    #[test]
    fn ipv6_address_is_joined_with_brackets() {
        let joined = (join_host_port("::1", 80), join_host_port("10.0.0.7", 80));
        assert_eq!(joined, ("[::1]:80".to_owned(), "10.0.0.7:80".to_owned()));
    }
}
