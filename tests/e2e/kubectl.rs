//! kubectl commands that use other formats than JSON: `create` and `drain` send protobuf, `explain` reads OpenAPI.

use serde_json::json;
use tests::{Cluster, PodBuilder, e2e_test, eventually};

#[e2e_test("kubectl create subcommands create objects from their arguments")]
fn create_subcommands_create_objects(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [0xff, 0, 1]).unwrap();
    let file = format!("--from-file=bin={}", file.path().display());
    kubectl.run(&format!("create configmap c --from-literal=a=b {file}")).ok();
    assert_eq!(kubectl.value("configmap/c", "/data"), json!({"a": "b"}));
    assert_eq!(kubectl.value("configmap/c", "/binaryData"), json!({"bin": "/wAB"}));
    kubectl.run(&format!("create secret generic s --from-literal=p=w {file}")).ok();
    assert_eq!(kubectl.value("secret/s", "/data"), json!({"p": "dw==", "bin": "/wAB"}));
    kubectl.run("create serviceaccount robot").ok();
    assert!(kubectl.get("serviceaccount/robot").is_some());
    let name = format!("{}-made", kubectl.namespace());
    kubectl.run(&format!("create namespace {name}")).ok();
    assert_eq!(kubectl.value(&format!("namespace/{name}"), "/status/phase"), "Active");
    let again = kubectl.run(&format!("create namespace {name}")).failed();
    assert!(again.contains(&format!("namespaces \"{name}\" already exists")), "{again}");
    kubectl.run(&format!("delete namespace {name} --timeout=60s")).ok();
}

#[e2e_test("kubectl explain describes every kind that is served")]
fn explain_describes_every_kind(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let kinds = kubectl.run("api-resources --no-headers").ok();
    assert!(kinds.lines().count() > 5, "{kinds}");
    for line in kinds.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [resource, .., api_version, _, kind] = words.as_slice() else { panic!("{line}") };
        // Other tests create and delete CRDs at the same time.
        if api_version.contains(".example.com/") {
            continue;
        }
        let text = kubectl.run(&format!("explain {resource} --api-version={api_version} --recursive")).ok();
        let expected = format!("KIND:       {kind}\n");
        assert!(text.contains(&expected) && text.contains("  metadata\t<ObjectMeta>"), "{line}: {text}");
    }
    let probe = kubectl.run("explain pod.spec.containers.livenessProbe.httpGet").ok();
    assert!(probe.contains("port\t<IntOrString> -required-"), "{probe}");
    let pulls = kubectl.run("explain pod.spec.containers.imagePullPolicy").ok();
    assert!(pulls.contains("ENUM:") && pulls.contains("IfNotPresent"), "{pulls}");
    let unknown = kubectl.run("explain pod.spec.nothing").failed();
    assert!(unknown.contains("field \"nothing\" does not exist"), "{unknown}");
}

#[e2e_test("kubectl explain reads OpenAPI v2")]
fn explain_reads_openapi_v2(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let explain = "explain --output=plaintext-openapiv2";
    let port = kubectl.run(&format!("{explain} pod.spec.containers.ports")).ok();
    assert!(port.contains("containerPort\t<integer> -required-"), "{port}");
    let deployment = kubectl.run(&format!("{explain} deployment.spec --recursive")).ok();
    assert!(deployment.contains("maxSurge\t<string>"), "{deployment}");
    let unknown = kubectl.run(&format!("{explain} pod.spec.nothing")).failed();
    assert!(unknown.contains("field \"nothing\" does not exist"), "{unknown}");
    // The server validates the items of a List, not the List.
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "listed"}, "data": {"a": "b"}, "more": 1}]});
    let refused = kubectl.args(&["create", "--validate=strict", "-f", "-"], &list.to_string()).failed();
    assert!(refused.contains("unknown field \"more\""), "{refused}");
}

#[e2e_test("kubectl drain evicts every Pod of a node")]
fn drain_evicts_every_pod() {
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl();
    let pod = PodBuilder::new("p").grace_period(1).command(&["sleep", "100000"]);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    let node = kubectl.value("pod/p", "/spec/nodeName").as_str().unwrap().to_owned();
    let drained = kubectl.run(&format!("drain {node} --force --timeout=60s")).ok();
    assert!(drained.contains("pod/p evicted"), "{drained}");
    assert_eq!(kubectl.value(&format!("node/{node}"), "/spec/unschedulable"), json!(true));
    assert!(kubectl.get("pod/p").is_none());
    // A cordoned node gets no Pods until it is uncordoned.
    kubectl.apply(&pod.to_string());
    eventually("the Pod to be unschedulable", || {
        kubectl.get("pod/p").is_some_and(|p| p["status"]["conditions"][0]["reason"] == "Unschedulable")
    });
    kubectl.run(&format!("uncordon {node}")).ok();
    kubectl.wait_ready("p");
}
