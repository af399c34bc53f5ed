//! Probes: one question to one container, and the verdict in Kubernetes' words (upstream's `pkg/probe`).
//!
//! Nothing here knows a Pod's life: `actions` says whom to ask, and `lifecycle` what an answer means.

pub(crate) mod counts;
pub(crate) mod exec;
mod greeting;
pub(crate) mod grpc;
pub(crate) mod http;
mod malformed;
pub(crate) mod tcp;
mod tls;
mod uri;
mod write_first;

use k8s_openapi::{api::core::v1::Container, apimachinery::pkg::util::intstr::IntOrString};
use std::num::IntErrorKind;
use tokio::time::{Instant, error::Elapsed, timeout_at};

/// How much of an output or a body is kept, in bytes (upstream's `maxReadLength` and `maxRespBodyLength`).
const KEPT: usize = 10 << 10;

/// The version that the requests of probes and hooks name.
pub(crate) const VERSION: &str = "1.35";

/// The port that a number or a name means to this container (upstream's `ResolveContainerPort`).
///
/// # Errors
/// In upstream's words, when the container has no port of this name, or the number is none of a port.
pub(crate) fn resolve_port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|p| p.name.as_deref() == Some(name));
            // Upstream's last hope is that the name is a number, and what it says is that it is none.
            named.map_or_else(|| number(name), |port| Ok(i64::from(port.container_port)))?
        }
    };
    u16::try_from(number).ok().filter(|n| *n > 0).ok_or_else(|| format!("invalid port number: {number}"))
}

/// A number in words, as Go reads one.
fn number(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|e| {
        let out_of_range = matches!(e.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
        let why = if out_of_range { "value out of range" } else { "invalid syntax" };
        format!("strconv.Atoi: parsing {text:?}: {why}")
    })
}

/// `host:port`, an IPv6 address in brackets.
fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The beginning of an output, as text.
fn kept(output: &[u8]) -> String {
    String::from_utf8_lossy(output.get(..KEPT).unwrap_or(output)).into_owned()
}

/// What comes of `work` before the deadline; without one, whenever it comes.
async fn before<F: Future>(deadline: Option<Instant>, work: F) -> Result<F::Output, Elapsed> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work).await,
        None => Ok(work.await),
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
        assert_eq!(found, expected.map_err(str::to_owned), "{port}");
    }

    #[test]
    fn a_port_is_a_number_or_a_name_of_the_container() {
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
    fn an_ipv6_address_has_brackets() {
        assert_eq!((address("::1", 80), address("10.0.0.7", 80)), ("[::1]:80".to_owned(), "10.0.0.7:80".to_owned()));
    }
}
