//! Podium's components use upstream's user names and are authorized by upstream's roles.

use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};
use tests::{ClusterBuilder, e2e_test, eventually};

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [kubernetes-admin, system:apiserver, system:anonymous]}
- {level: Metadata}
";

fn events(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // The last line may be incomplete.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns manifests that involve many controllers: all workload kinds, a Service, a disruption budget and a quota.
fn workloads() -> String {
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"],
        "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}],
        "volumeMounts": [{"name": "s", "mountPath": "/s"}]});
    let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "s", "secret": {"secretName": "s"}}]});
    let template = |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": spec});
    let made = |version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let once = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": test_images::BUSYBOX, "command": ["true"]}]});
    let items = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}),
        made(
            "v1",
            "PersistentVolumeClaim",
            "c",
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}),
        ),
        made("v1", "ResourceQuota", "q", json!({"hard": {"pods": "20"}})),
        made(
            "apps/v1",
            "Deployment",
            "d",
            json!({"replicas": 2, "selector": selector("d"), "template": template("d")}),
        ),
        made("apps/v1", "DaemonSet", "e", json!({"selector": selector("e"), "template": template("e")})),
        made("batch/v1", "Job", "j", json!({"ttlSecondsAfterFinished": 0, "template": {"spec": once}})),
        made("v1", "Service", "v", json!({"selector": {"app": "d"}, "ports": [{"port": 80}]})),
        made("policy/v1", "PodDisruptionBudget", "b", json!({"minAvailable": 1, "selector": selector("d")})),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Formats an audit event: `system:kube-scheduler create pods/binding`.
fn describe(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let about = &event["objectRef"];
    let part = text(&about["subresource"]);
    let part = if part.is_empty() { part } else { format!("/{part}") };
    format!("{} {} {}{part}", text(&event["user"]["username"]), text(&event["verb"]), text(&about["resource"]))
}

/// Returns the forbidden requests with their reasons.
fn forbidden(events: &[Value]) -> BTreeSet<String> {
    let is_refused = |e: &&Value| e["annotations"]["authorization.k8s.io/decision"] == "forbid";
    let message = |e: &Value| e["annotations"]["authorization.k8s.io/reason"].to_string();
    events.iter().filter(is_refused).map(|e| format!("{}: {}", describe(e), message(e))).collect()
}

#[e2e_test("scheduler, controllers and kubelet use their own identities and are authorized")]
fn components_use_their_identities_and_are_authorized() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    std::fs::write(&policy, POLICY).unwrap();
    let args = ["--audit-policy-file", policy.to_str().unwrap(), "--audit-log-path", log.to_str().unwrap()];
    let cluster = ClusterBuilder::default().args(&args).start();
    let kubectl = cluster.kubectl_in("default");
    kubectl.run("create namespace busy").ok();
    let busy = cluster.kubectl_in("busy");
    busy.apply(&workloads());
    busy.run("wait --for=condition=Available --timeout=60s deployment/d").ok();
    eventually("the Job to be deleted after its end", || busy.get("job/j").is_none());
    busy.run("scale deployment/d --replicas=1").ok();
    busy.run("rollout status daemonset/e --timeout=60s").ok();
    eventually("the disruption budget to count its Pods", || busy.value("pdb/b", "/status/currentHealthy") == json!(1));
    assert_eq!(forbidden(&events(&log)), BTreeSet::new());
    kubectl.run("delete namespace busy --timeout=60s").ok();
    let node = kubectl.run("get nodes -o jsonpath={.items[0].metadata.name}").ok();
    let all = events(&log);
    // The Node authorizer forbids the kubelet to read objects whose last Pod on the node is gone.
    let late = |message: &String| message.starts_with("system:node:") && message.contains("no relationship found");
    let forbidden: Vec<String> = forbidden(&all).into_iter().filter(|message| !late(message)).collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    let done: BTreeSet<String> = all.iter().map(describe).collect();
    let account = |name: &str, message: &str| format!("system:serviceaccount:kube-system:{name} {message}");
    for expected in [
        "system:kube-scheduler create pods/binding".to_owned(),
        "system:kube-controller-manager watch pods".to_owned(),
        format!("system:node:{node} patch pods/status"),
        format!("system:node:{node} create nodes"),
        account("deployment-controller", "create replicasets"),
        account("replicaset-controller", "create pods"),
        account("daemon-set-controller", "create pods"),
        account("job-controller", "create pods"),
        account("ttl-after-finished-controller", "delete jobs"),
        account("endpoint-controller", "create endpoints"),
        account("endpointslice-controller", "create endpointslices"),
        account("disruption-controller", "update poddisruptionbudgets/status"),
        account("resourcequota-controller", "update resourcequotas/status"),
        account("service-account-controller", "create serviceaccounts"),
        account("pvc-protection-controller", "update persistentvolumeclaims"),
        account("root-ca-cert-publisher", "create configmaps"),
        account("namespace-controller", "update namespaces/finalize"),
        account("node-controller", "patch nodes"),
    ] {
        assert!(done.contains(&expected), "{expected}: {done:#?}");
    }
    let masters = all.iter().filter(|e| {
        e["user"]["groups"].as_array().is_some_and(|groups| groups.iter().any(|group| group == "system:masters"))
    });
    assert_eq!(masters.map(describe).collect::<Vec<_>>(), Vec::<String>::new());
    // Impersonated names are enough: these users need no objects.
    assert_eq!(kubectl.run("get serviceaccounts -n kube-system -o name").ok(), "serviceaccount/default\n");
    let components = kubectl.run("get componentstatuses --no-headers").ok();
    let healthy = |line: &str| line.split_whitespace().nth(1) == Some("Healthy");
    assert!(components.lines().count() == 2 && components.lines().all(healthy), "{components}");
    let measured = kubectl.run("get --raw /metrics").ok();
    assert!(
        measured.contains("flow_schema=\"kube-controller-manager\",priority_level=\"workload-high\""),
        "{measured}"
    );
}
