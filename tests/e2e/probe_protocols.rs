//! HTTPS and gRPC probes of a server in a container: `tests/src/bin/probe_server.rs`.

use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, wait_for};

/// Applies a Pod of the server, which is mounted from the node together with its shared libraries.
pub(crate) fn apply(kubectl: &Kubectl, name: &str, fields: &Value) {
    let of_the_node = [
        ("server", env!("CARGO_BIN_EXE_probe_server"), "/probe-server"),
        ("lib", "/lib", "/lib"),
        ("lib64", "/lib64", "/lib64"),
    ];
    let mounts = of_the_node.map(|(name, _, at)| json!({"name": name, "mountPath": at, "readOnly": true}));
    let volumes = of_the_node.map(|(name, from, _)| json!({"name": name, "hostPath": {"path": from}}));
    let ports = json!([{"name": "tls", "containerPort": 8443}, {"name": "health", "containerPort": 9090}]);
    let pod = PodBuilder::new(name)
        .grace_period(0)
        .command(&["/probe-server"])
        .spec(&json!({"volumes": volumes}))
        .container(&json!({"volumeMounts": mounts, "ports": ports}))
        .container(fields);
    kubectl.apply(&pod.to_string());
}

/// Checks that probes with these handlers pass, or fail with this message.
fn check(cluster: &Cluster, cases: &[(&str, Value, Result<(), &str>)]) {
    let kubectl = cluster.kubectl();
    for (name, handler, _) in cases {
        let mut probe = handler.clone();
        probe["periodSeconds"] = json!(1);
        probe["timeoutSeconds"] = json!(5);
        apply(&kubectl, name, &json!({"readinessProbe": probe}));
    }
    for (name, _, expected) in cases {
        let Err(words) = expected else {
            kubectl.wait_ready(name);
            continue;
        };
        let expected = format!("Readiness probe failed: {words}");
        wait_for(&format!("{name}: {expected}"), Duration::from_secs(60), || {
            let events = kubectl.events(name);
            let reported = events.iter().any(|(reason, message)| reason == "Unhealthy" && message.trim() == expected);
            if reported { Ok(()) } else { Err(format!("{events:?}")) }
        });
        assert_eq!(kubectl.value(&format!("pod/{name}"), "/status/containerStatuses/0/ready"), json!(false), "{name}");
    }
}

#[e2e_test("an HTTPS readiness probe works and sends its headers")]
fn https_readiness_probe_sends_headers(cluster: &Cluster) {
    let word = json!([{"name": "X-Word", "value": "hello"}]);
    let other = json!([{"name": "X-Word", "value": "hello"}, {"name": "Host", "value": "other.example"}]);
    let get = |headers: &Value| json!({"httpGet": {"scheme": "HTTPS", "port": "tls", "httpHeaders": headers}});
    check(
        cluster,
        &[
            ("word", get(&word), Ok(())),
            ("silent", get(&json!([])), Err("HTTP probe failed with statuscode: 400")),
            ("stranger", get(&other), Err("HTTP probe failed with statuscode: 400")),
        ],
    );
}

#[e2e_test("a gRPC readiness probe works and names its service")]
fn grpc_readiness_probe_names_service(cluster: &Cluster) {
    let service = |name: &str| json!({"grpc": {"port": 9090, "service": name}});
    let unknown = "error: health rpc probe failed: rpc error: code = NotFound desc = service not registered";
    check(
        cluster,
        &[
            ("whole", json!({"grpc": {"port": 9090}}), Ok(())),
            ("up", service("up"), Ok(())),
            ("down", service("down"), Err("service unhealthy (responded with \"NOT_SERVING\")")),
            ("unknown", service("none"), Err(unknown)),
        ],
    );
}

#[e2e_test("a gRPC liveness probe that fails restarts the container")]
fn grpc_liveness_failure_restarts_container(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let probe = json!({"grpc": {"port": 9090, "service": "down"}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 1});
    apply(&kubectl, "p", &json!({"livenessProbe": probe}));
    wait_for("a restart", Duration::from_secs(60), || {
        let status = kubectl.value("pod/p", "/status/containerStatuses/0");
        if status["restartCount"].as_i64() >= Some(1) { Ok(()) } else { Err(status.to_string()) }
    });
    let words = "Container c failed liveness probe, will be restarted";
    kubectl.wait_for_event("p", "Killing", words);
}
