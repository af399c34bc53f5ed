//! The audit log of a cluster.

use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use tests::{ClusterBuilder, PodBuilder, e2e_test, wait_for};

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, resources: [{group: '', resources: [secrets, pods/exec]}]}
- {level: Request, users: [kubernetes-admin], verbs: [create, delete], namespaces: [default]}
";

fn events(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // The last line may be incomplete.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[e2e_test("the audit log records each request's user and verb from the first to the last")]
fn audit_log_records_every_request() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("logs/audit.log"));
    std::fs::write(&policy, POLICY).unwrap();
    let (policy, path) = (policy.to_str().unwrap(), log.to_str().unwrap());
    let mut cluster =
        ClusterBuilder::default().args(&["--audit-policy-file", policy, "--audit-log-path", path]).start();
    let kubectl = cluster.kubectl_in("default");
    kubectl.run("create secret generic s --from-literal=k=hidden").ok();
    kubectl.run("create configmap m --from-literal=k=shown").ok();
    let pod = PodBuilder::new("p").grace_period(0).command(&["sleep", "100000"]);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    kubectl.run("exec p -- true").ok();
    let events_of = |verb: &str, resource: &str, part: &str| {
        let about =
            |e: &Value| (e["verb"].clone(), e["objectRef"]["resource"].clone(), e["objectRef"]["subresource"].clone());
        let part = if part.is_empty() { Value::Null } else { json!(part) };
        let expected = (json!(verb), json!(resource), part);
        let is_admin = |e: &Value| e["user"]["username"] == "kubernetes-admin";
        events(&log).into_iter().filter(|e| is_admin(e) && about(e) == expected).collect::<Vec<_>>()
    };
    // WebSockets use GET, SPDY uses POST. kubectl 1.32 may need a second request when it lost the output of the first.
    let exec = wait_for("the end of the session in the log", Duration::from_secs(60), || {
        let mut all = [events_of("get", "pods", "exec"), events_of("create", "pods", "exec")].concat();
        let first = all.first().map_or(Value::Null, |e| e["auditID"].clone());
        all.retain(|e| e["auditID"] == first);
        if all.len() == 2 { Ok(all) } else { Err(format!("{:#}", json!(all))) }
    });
    let stages: Vec<(&Value, &Value)> = exec.iter().map(|e| (&e["stage"], &e["responseStatus"]["code"])).collect();
    assert_eq!(stages, [(&json!("ResponseStarted"), &json!(101)), (&json!("ResponseComplete"), &json!(101))]);
    let [secret] = events_of("create", "secrets", "").try_into().unwrap();
    assert_eq!((&secret["objectRef"]["name"], &secret["requestObject"]), (&json!("s"), &Value::Null));
    assert_eq!((&secret["sourceIPs"], &secret["responseStatus"]["code"]), (&json!(["127.0.0.1"]), &json!(201)));
    assert!(secret["userAgent"].as_str().unwrap().starts_with("kubectl/"), "{secret:#}");
    let [map] = events_of("create", "configmaps", "").try_into().unwrap();
    assert_eq!((&map["level"], &map["requestObject"]["data"]), (&json!("Request"), &json!({"k": "shown"})));
    kubectl.run("delete configmap m").ok();
    cluster.stop_podium(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(events_of("delete", "configmaps", "").len(), 1, "what was done last is written before the end");
    assert!(!std::fs::read_to_string(&log).unwrap().contains("hidden"));

    std::fs::write(policy, POLICY.replace("level: Request,", "level: Everything,")).unwrap();
    let address = ["up", "--bind", "127.0.0.1:0", "--audit-policy-file", policy, "--audit-log-path", path];
    let refused = cluster.podium(&address).output().unwrap();
    let reported = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && reported.contains("rules[1].level: Unsupported value: \"Everything\""),
        "{reported}"
    );
}
