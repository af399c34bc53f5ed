//! Execution of probes (upstream's `pkg/kubelet/prober/prober.go`). `crates/lifecycle/src/probe_worker.rs` decides the
//! result by the thresholds.

use super::{ActionError, container_spec, while_running};
use crate::{
    Shared,
    env_vars::expand,
    probe_handlers::{PortError, exec, grpc, http, resolve_port, tcp},
};
use k8s_openapi::api::core::v1::{Container, Probe};
use lifecycle::{Pod, PodLifecycleEvent, ProbeKind, ProbeOutcome};
use runtime::{ContainerId, Runtime};
use std::{collections::HashMap, net::IpAddr, time::Duration};
use tokio::time::Instant;

/// Maximum number of attempts while a probe has no result (upstream's `maxProbeRetries`).
const MAX_PROBE_RETRIES: usize = 3;

/// Executes a probe (`prober.probe`). There is no result if the container ends meanwhile.
pub(super) async fn run(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    id: String,
    kind: ProbeKind,
) -> Result<Vec<PodLifecycleEvent>, ActionError> {
    let container = container_spec(pod, name)?;
    let probe = match kind {
        ProbeKind::Startup => &container.startup_probe,
        ProbeKind::Liveness => &container.liveness_probe,
        ProbeKind::Readiness => &container.readiness_probe,
    };
    let probe = probe.as_ref().ok_or_else(|| ActionError::NoProbe(name.to_owned()))?;
    let runtime_id = ContainerId(id.clone());
    let result =
        run_probe_with_retries(shared.runtime.as_ref(), &runtime_id, container, probe, pod.ips().first().copied());
    let started = Instant::now();
    let outcome = while_running(shared, pod, name, &id, result).await;
    if let Some(outcome) = &outcome {
        shared.probes.record(&pod.object().metadata, name, kind, outcome, started.elapsed());
    }
    Ok(outcome.map(|outcome| PodLifecycleEvent::Probed { id, probe: kind, outcome }).into_iter().collect())
}

/// Runs a probe, and retries it at once if it gives no result (`runProbeWithRetries`).
async fn run_probe_with_retries(
    runtime: &dyn Runtime,
    id: &ContainerId,
    container: &Container,
    probe: &Probe,
    ip: Option<IpAddr>,
) -> ProbeOutcome {
    let mut outcome = run_probe(runtime, id, container, probe, ip).await;
    for _ in 1..MAX_PROBE_RETRIES {
        if !matches!(outcome, ProbeOutcome::Unknown(_)) {
            break;
        }
        outcome = run_probe(runtime, id, container, probe, ip).await;
    }
    outcome
}

/// Runs the handler of a probe: `exec`, `httpGet`, `tcpSocket` or `grpc` (`prober.runProbe`).
async fn run_probe(
    runtime: &dyn Runtime,
    id: &ContainerId,
    container: &Container,
    probe: &Probe,
    ip: Option<IpAddr>,
) -> ProbeOutcome {
    let seconds = probe.timeout_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(1).max(1);
    let limit = Duration::from_secs(seconds);
    if let Some(action) = &probe.exec {
        return exec::probe(runtime, id, &expand_command(action.command.as_deref(), container), limit).await;
    }
    if let Some(action) = &probe.http_get {
        return http::probe(action, container, ip, limit).await;
    }
    let (host, port) = match (&probe.tcp_socket, &probe.grpc) {
        (Some(tcp), _) => (tcp.host.clone().filter(|h| !h.is_empty()), resolve_port(&tcp.port, container)),
        (_, Some(grpc)) => (None, u16::try_from(grpc.port).map_err(|_| PortError::InvalidNumber(i64::from(grpc.port)))),
        (None, None) => return ProbeOutcome::Unknown(format!("missing probe handler for {}", container.name)),
    };
    let port = match port {
        Ok(port) => port,
        Err(error) => return ProbeOutcome::Unknown(error.to_string()),
    };
    let Some(host) = host.or_else(|| ip.map(|ip| ip.to_string())) else {
        return ProbeOutcome::Unknown("the Pod has no address".to_owned());
    };
    match &probe.grpc {
        Some(action) if probe.tcp_socket.is_none() => {
            grpc::probe(&host, port, action.service.as_deref().unwrap_or_default(), limit).await
        }
        _ => tcp::probe(&host, port, limit).await,
    }
}

/// Expands `$(NAME)` with values in the spec. Variables with `valueFrom` are empty, as upstream.
fn expand_command(words: Option<&[String]>, container: &Container) -> Vec<String> {
    let env = container.env.iter().flatten();
    let values: HashMap<_, _> = env.map(|e| (e.name.as_str(), e.value.as_deref().unwrap_or_default())).collect();
    words.unwrap_or_default().iter().map(|word| expand(word, |name| values.get(name).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Clock,
        fake_runtime::{FakeRuntime, commands::Command},
    };
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    /// Checks the result of a probe, the number of executed commands, and the duration in seconds.
    async fn check(probe: Value, behaviour: Command, expected: (ProbeOutcome, usize, u64)) {
        let runtime = FakeRuntime::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        runtime.command("check it", behaviour);
        let env =
            json!([{"name": "WHAT", "value": "it"}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]);
        let container = serde_json::from_value(json!({"name": "c", "env": env})).expect("a container");
        let spec = serde_json::from_value(probe.clone()).expect("a probe");
        let started = Instant::now();
        let outcome = run_probe_with_retries(&runtime, &ContainerId("1".to_owned()), &container, &spec, None).await;
        assert_eq!((outcome, runtime.commands().len(), started.elapsed().as_secs()), expected, "{probe}");
    }

    fn exec() -> Value {
        json!({"exec": {"command": ["check", "$(WHAT)$(F)"]}, "timeoutSeconds": 3})
    }

    #[tokio::test(start_paused = true)]
    async fn exec_probe_result_follows_the_exit_code() {
        let long = "x".repeat(20_000);
        check(exec(), Command::Ends(0, "fine".to_owned()), (ProbeOutcome::Success, 1, 0)).await;
        let failed = ProbeOutcome::Failure("no luck".to_owned());
        check(exec(), Command::Ends(1, "no luck".to_owned()), (failed, 1, 0)).await;
        let cut = ProbeOutcome::Failure("x".repeat(10_240));
        check(exec(), Command::Ends(255, long), (cut, 1, 0)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn exec_probe_fails_after_its_timeout() {
        let late = || ProbeOutcome::Failure("command \"check it\" timed out".to_owned());
        check(exec(), Command::Hangs, (late(), 1, 3)).await;
        let short = json!({"exec": {"command": ["check", "it"]}});
        check(short, Command::Hangs, (late(), 1, 1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn probe_error_is_retried_and_then_unknown() {
        let unknown = |words: &str| ProbeOutcome::Unknown(words.to_owned());
        check(
            exec(),
            Command::Fails("no such file".to_owned()),
            (unknown("rpc error: code = Unknown desc = no such file"), 3, 0),
        )
        .await;
        for (probe, words) in [
            (json!({"tcpSocket": {"port": "web"}}), "strconv.Atoi: parsing \"web\": invalid syntax"),
            (json!({"tcpSocket": {"port": 80}}), "the Pod has no address"),
            (json!({"grpc": {"port": 80}}), "the Pod has no address"),
            (json!({}), "missing probe handler for c"),
        ] {
            check(probe, Command::Hangs, (unknown(words), 0, 0)).await;
        }
    }
}
