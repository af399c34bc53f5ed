//! Probes: one question to one container, and the verdict in Kubernetes' words (upstream's `pkg/probe`).
//!
//! Nothing here knows a Pod's life: `actions` says whom to ask, and `lifecycle` what an answer means.

pub(crate) mod counts;
pub(crate) mod exec;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod tcp;
mod tls;
mod uri;
mod write_first;

use k8s_openapi::{api::core::v1::Container, apimachinery::pkg::util::intstr::IntOrString};
use tokio::time::{Instant, error::Elapsed, timeout_at};

/// How much of an output or a body is kept, in bytes (upstream's `maxReadLength` and `maxRespBodyLength`).
const KEPT: usize = 10 << 10;

/// The version that the requests of probes and hooks name.
pub(crate) const VERSION: &str = "1.35";

/// The port that a number or a name means to this container (upstream's `ResolveContainerPort`).
///
/// # Errors
/// When the container has no port of this name, or the number is none of a port.
pub(crate) fn resolve_port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|p| p.name.as_deref() == Some(name));
            named.ok_or_else(|| format!("port {name:?} not found"))?.container_port
        }
    };
    u16::try_from(number).ok().filter(|n| *n > 0).ok_or_else(|| format!("invalid port number: {number}"))
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
        check(&json!("80"), Err("port \"80\" not found"));
        check(&json!("dns"), Err("port \"dns\" not found"));
        check(&json!(0), Err("invalid port number: 0"));
        check(&json!(65536), Err("invalid port number: 65536"));
    }

    #[test]
    fn an_ipv6_address_has_brackets() {
        assert_eq!((address("::1", 80), address("10.0.0.7", 80)), ("[::1]:80".to_owned(), "10.0.0.7:80".to_owned()));
    }
}
