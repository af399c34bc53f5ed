//! Carrying out one probe of a container.

use super::{spec_of, while_running};
use crate::{
    Shared,
    environment::expand,
    probe::{exec, grpc, http, resolve_port, tcp},
};
use k8s_openapi::api::core::v1::{Container, Probe};
use lifecycle::{Event, Pod, ProbeKind, ProbeOutcome};
use runtime::{ContainerId, Runtime};
use std::{collections::HashMap, net::IpAddr, time::Duration};
use tokio::time::Instant;

/// How often is asked before there is no verdict (upstream's `maxProbeRetries`).
const TRIES: usize = 3;

/// Asks once. A container that ends meanwhile has no verdict, and needs none.
pub(super) async fn run(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    id: String,
    kind: ProbeKind,
) -> Result<Vec<Event>, String> {
    let container = spec_of(pod, name)?;
    let probe = match kind {
        ProbeKind::Startup => &container.startup_probe,
        ProbeKind::Liveness => &container.liveness_probe,
        ProbeKind::Readiness => &container.readiness_probe,
    };
    let probe = probe.as_ref().ok_or_else(|| format!("{name} has no such probe"))?;
    let runtime_id = ContainerId(id.clone());
    let asked = verdict(shared.runtime.as_ref(), &runtime_id, container, probe, pod.ips().first().copied());
    let began = Instant::now();
    let outcome = while_running(shared, pod, name, &id, asked).await;
    if let Some(outcome) = &outcome {
        shared.probes.count(&pod.object().metadata, name, kind, outcome, began.elapsed());
    }
    Ok(outcome.map(|outcome| Event::Probed { id, probe: kind, outcome }).into_iter().collect())
}

/// What a probe says. One that itself fails is made again at once.
async fn verdict(
    runtime: &dyn Runtime,
    id: &ContainerId,
    container: &Container,
    probe: &Probe,
    ip: Option<IpAddr>,
) -> ProbeOutcome {
    let mut outcome = once(runtime, id, container, probe, ip).await;
    for _ in 1..TRIES {
        if !matches!(outcome, ProbeOutcome::Unknown(_)) {
            break;
        }
        outcome = once(runtime, id, container, probe, ip).await;
    }
    outcome
}

async fn once(
    runtime: &dyn Runtime,
    id: &ContainerId,
    container: &Container,
    probe: &Probe,
    ip: Option<IpAddr>,
) -> ProbeOutcome {
    let seconds = probe.timeout_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(1).max(1);
    let limit = Duration::from_secs(seconds);
    if let Some(action) = &probe.exec {
        return exec::probe(runtime, id, &command(action.command.as_deref(), container), limit).await;
    }
    if let Some(action) = &probe.http_get {
        return http::probe(action, container, ip, limit).await;
    }
    let (host, port) = match (&probe.tcp_socket, &probe.grpc) {
        (Some(tcp), _) => (tcp.host.clone().filter(|h| !h.is_empty()), resolve_port(&tcp.port, container)),
        (_, Some(grpc)) => (None, u16::try_from(grpc.port).map_err(|_| format!("invalid port number: {}", grpc.port))),
        (None, None) => return ProbeOutcome::Unknown(format!("missing probe handler for {}", container.name)),
    };
    let port = match port {
        Ok(port) => port,
        Err(why) => return ProbeOutcome::Unknown(why),
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

/// The command with `$(NAME)` replaced by what the spec itself gives: a variable that comes from elsewhere is empty, as
/// it is upstream.
fn command(words: Option<&[String]>, container: &Container) -> Vec<String> {
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

    /// What comes of a probe of a container whose commands behave like this, how many were run, and how long it takes.
    async fn check(probe: Value, behaviour: Command, expected: (ProbeOutcome, usize, u64)) {
        let runtime = FakeRuntime::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        runtime.command("check it", behaviour);
        let env =
            json!([{"name": "WHAT", "value": "it"}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]);
        let container = serde_json::from_value(json!({"name": "c", "env": env})).expect("a container");
        let spec = serde_json::from_value(probe.clone()).expect("a probe");
        let began = Instant::now();
        let outcome = verdict(&runtime, &ContainerId("1".to_owned()), &container, &spec, None).await;
        assert_eq!((outcome, runtime.commands().len(), began.elapsed().as_secs()), expected, "{probe}");
    }

    fn exec() -> Value {
        json!({"exec": {"command": ["check", "$(WHAT)$(F)"]}, "timeoutSeconds": 3})
    }

    #[tokio::test(start_paused = true)]
    async fn the_exit_code_of_a_command_decides() {
        let long = "x".repeat(20_000);
        check(exec(), Command::Ends(0, "fine".to_owned()), (ProbeOutcome::Success, 1, 0)).await;
        let failed = ProbeOutcome::Failure("no luck".to_owned());
        check(exec(), Command::Ends(1, "no luck".to_owned()), (failed, 1, 0)).await;
        let cut = ProbeOutcome::Failure("x".repeat(10_240));
        check(exec(), Command::Ends(255, long), (cut, 1, 0)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_takes_too_long_fails_when_its_time_is_over() {
        let late = || ProbeOutcome::Failure("command \"check it\" timed out".to_owned());
        check(exec(), Command::Hangs, (late(), 1, 3)).await;
        let short = json!({"exec": {"command": ["check", "it"]}});
        check(short, Command::Hangs, (late(), 1, 1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_cannot_be_made_is_tried_three_times_and_gives_no_verdict() {
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
