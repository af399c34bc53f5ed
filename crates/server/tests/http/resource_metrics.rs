//! Resource metrics (`metrics.k8s.io`) with fake kubelets.

use crate::common::*;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use server::{ApiServer, DialedStream, NodeDialer};
use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use store::{MemoryEngine, Options, Store};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const POD_METRICS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";

/// Kubelet of the node `n`, with the number of its requests; other nodes are unreachable.
#[derive(Default)]
struct Kubelet(Arc<AtomicU32>);

/// Returns `/metrics/resource` of the given request. Samples are ten seconds apart.
fn metrics_page(requests: u32) -> String {
    let (at, seconds) = (1_700_000_000_000 + u64::from(requests) * 10_000, f64::from(requests));
    let mut page = format!(
        "# TYPE node_cpu_usage_seconds counter\nnode_cpu_usage_seconds_total {} {at}\nnode_memory_working_set_bytes 4194304 {at}\n",
        100.0 + seconds * 15.0
    );
    for (pod, container, cpu, memory) in
        [("p", "c", 1.234_567_891, 1_234_944), ("q", "c", 0.000_05, 4096), ("q", "d", 5.0, 1_000_001)]
    {
        let labels = format!(r#"{{container="{container}",pod="{pod}",namespace="default"}}"#);
        page += &format!(
            "container_start_time_seconds{labels} 1600000000\ncontainer_cpu_usage_seconds_total{labels} {} {at}\n\
             container_memory_working_set_bytes{labels} {memory} {at}\n",
            100.0 + seconds * cpu
        );
    }
    page
}

impl NodeDialer for Kubelet {
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>> {
        async move {
            if node != "n" {
                return Err(io::Error::other(format!("no such node: {node}")));
            }
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let requests = Arc::clone(&self.0);
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                assert_eq!(request.uri(), "/metrics/resource");
                let page = metrics_page(requests.fetch_add(1, Ordering::Relaxed));
                async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(page)))) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(theirs), service));
            Ok(Box::new(ours) as Box<dyn DialedStream>)
        }
        .boxed()
    }
}

/// Starts a server with the nodes `n`, which is reachable, and `m`, which is not, and the Pods `p` and `q` with
/// metrics on `n`, `r` without metrics on `n`, `s` on `m`, and `t` without a node.
async fn start_api() -> (TestApi, Arc<AtomicU32>) {
    let engine = MemoryEngine::new();
    let kubelet = Kubelet::default();
    let requests = Arc::clone(&kubelet.0);
    let server = ApiServer::new(Store::open(engine.clone(), Options::default()).unwrap(), Arc::new(kubelet));
    server.bootstrap().await;
    server.bootstrap_rbac().await;
    let api = TestApi { server, engine };
    for (name, labels) in [("m", json!({})), ("n", json!({"kind": "quick"}))] {
        let node = json!({"metadata": {"name": name, "labels": labels}});
        api.check(post("/api/v1/nodes", &node), 201, json!({})).await;
    }
    for (name, node) in [("p", "n"), ("q", "n"), ("r", "n"), ("s", "m"), ("t", "")] {
        let mut object = pod(name);
        object["metadata"]["labels"] = json!({"app": name});
        if !node.is_empty() {
            object["spec"]["nodeName"] = json!(node);
        }
        api.check(post(PODS, &object), 201, json!({})).await;
    }
    (api, requests)
}

fn item_names(list: &Value) -> String {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn concurrent_requests_share_two_samples() {
    let (api, requests) = start_api().await;
    let one = json!({"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "p", "namespace": "default", "labels": {"app": "p"}},
        "timestamp": "2023-11-14T22:13:30Z", "window": "10s",
        "containers": [{"name": "c", "usage": {"cpu": "123456789n", "memory": "1206Ki"}}]});
    let path = format!("{POD_METRICS}/p");
    tokio::join!(api.check(get(&path), 200, one.clone()), api.check(get(&path), 200, one));
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    let (now, created) =
        (jiff::Timestamp::now(), api.send(&get(&path)).await.body["metadata"]["creationTimestamp"].clone());
    let created: jiff::Timestamp = created.as_str().unwrap().parse().unwrap();
    assert!(now.duration_since(created).as_secs().abs() < 10, "{created}");
}

#[tokio::test]
async fn pod_metrics_support_selectors_and_namespaces() {
    let (api, _) = start_api().await;
    let containers = json!([{"name": "c", "usage": {"cpu": "5u", "memory": "4Ki"}},
        {"name": "d", "usage": {"cpu": "500m", "memory": "1000001"}}]);
    let items =
        json!([{"kind": null, "metadata": {"name": "p"}}, {"metadata": {"name": "q"}, "containers": containers}]);
    let list = json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {"resourceVersion": null}, "items": items});
    api.check(get(POD_METRICS), 200, list).await;
    for (query, expected) in [
        ("", "p q"),
        ("?labelSelector=app%3Dq", "q"),
        ("?labelSelector=app%20notin%20(q)", "p"),
        ("?labelSelector=app%3Dt", ""),
        ("?fieldSelector=metadata.name%3Dp", "p"),
        ("?fieldSelector=metadata.name!%3Dp", "q"),
        ("?fieldSelector=metadata.namespace%3Dother", ""),
        ("?fieldSelector=metadata.namespace%3Ddefault,metadata.name%3Dq&limit=1", "q"),
    ] {
        for path in [format!("{METRICS}/pods{query}"), format!("{POD_METRICS}{query}")] {
            assert_eq!(item_names(&api.check(get(&path), 200, json!({})).await.body), expected, "{path}");
        }
    }
    assert_eq!(item_names(&api.send(&get(format!("{METRICS}/namespaces/other/pods"))).await.body), "");
    let message = r#""spec.nodeName" is not a known field selector: only "metadata.name", "metadata.namespace""#;
    api.check(get(format!("{POD_METRICS}?fieldSelector=spec.nodeName%3Dn")), 400, json!({"message": message})).await;
}

#[tokio::test]
async fn metrics_of_an_unreachable_node_are_omitted() {
    let (api, _) = start_api().await;
    let n = json!({"metadata": {"name": "n", "labels": {"kind": "quick"}}, "window": "10s", "usage": {"cpu": "1500m", "memory": "4Mi"}});
    api.check(get(format!("{METRICS}/nodes")), 200, json!({"kind": "NodeMetricsList", "items": [n]})).await;
    api.check(get(format!("{METRICS}/nodes?labelSelector=kind")), 200, json!({"items": [n]})).await;
    api.check(get(format!("{METRICS}/nodes?labelSelector=!kind")), 200, json!({"items": []})).await;
    api.check(get(format!("{METRICS}/nodes/n")), 200, json!({"kind": "NodeMetrics", "usage": n["usage"]})).await;
    let message = r#"nodemetrics.metrics.k8s.io "m" not found"#;
    api.check(get(format!("{METRICS}/nodes/m")), 404, json!({"reason": "NotFound", "message": message})).await;
}

#[tokio::test]
async fn missing_metrics_use_metrics_server_messages() {
    let (api, _) = start_api().await;
    for (path, message) in [
        ("namespaces/default/pods/none", r#"pods "none" not found"#),
        ("namespaces/default/pods/r", r#"podmetrics.metrics.k8s.io "default/r" not found"#),
        ("namespaces/default/pods/s", r#"podmetrics.metrics.k8s.io "default/s" not found"#),
        ("namespaces/default/pods/t", r#"podmetrics.metrics.k8s.io "default/t" not found"#),
        ("nodes/none", r#"node "none" not found"#),
        ("namespaces/default/pods/p/log", "the server could not find the requested resource"),
        ("namespaces/default/pods/p/exec", "the server could not find the requested resource"),
        ("nodes/n/proxy", "the server could not find the requested resource"),
        ("pods/p", "the server could not find the requested resource"),
    ] {
        let response = json!({"kind": "Status", "reason": "NotFound", "message": message});
        api.check(get(format!("{METRICS}/{path}")), 404, response).await;
    }
}

#[tokio::test]
async fn metrics_reject_writes_and_watches() {
    let (api, requests) = start_api().await;
    let object = json!({"metadata": {"name": "p"}});
    let message = "the server does not allow this method on the requested resource";
    for request in [
        post(POD_METRICS, &object),
        put(format!("{POD_METRICS}/p"), &object),
        merge_patch(format!("{POD_METRICS}/p"), &object),
        delete(format!("{POD_METRICS}/p")),
        delete(POD_METRICS),
        post(format!("{METRICS}/nodes"), &object),
    ] {
        api.check(request, 405, json!({"reason": "MethodNotAllowed", "message": message})).await;
    }
    let message = r#"watch is not supported on resources of kind "pods.metrics.k8s.io""#;
    api.check(get(format!("{POD_METRICS}?watch=1")), 405, json!({"message": message})).await;
    assert_eq!(requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn metrics_tables_have_metrics_server_columns() {
    let (api, _) = start_api().await;
    let returned = api.check(get_table(POD_METRICS), 200, json!({"kind": "Table"})).await.body;
    let columns: Vec<String> = returned["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{} {}", c["name"].as_str().unwrap(), c["format"].as_str().unwrap()))
        .collect();
    assert_eq!(columns, ["Name name", "cpu quantity", "memory quantity", "Window duration"]);
    let rows: Vec<&Value> = returned["rows"].as_array().unwrap().iter().map(|r| &r["cells"]).collect();
    assert_eq!(rows, [&json!(["p", "123456789n", "1206Ki", "10s"]), &json!(["q", "500005u", "1004097", "10s"])]);
    let one = api.send(&get_table(format!("{METRICS}/nodes/n"))).await.body;
    assert_eq!(one["rows"][0]["cells"], json!(["n", "1500m", "4Mi", "10s"]));
}

#[tokio::test]
async fn metrics_kinds_are_in_discovery_and_openapi() {
    let (api, _) = start_api().await;
    let list = json!({"groupVersion": "metrics.k8s.io/v1beta1", "resources": [
        {"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"], "storageVersionHash": null},
        {"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]}]});
    api.check(get(METRICS), 200, list).await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let all = api.send(&get("/apis").header("accept", accept)).await.body;
    let group = all["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "metrics.k8s.io").unwrap();
    assert_eq!(group["versions"][0]["resources"][1]["verbs"], json!(["get", "list"]));
    let document = api.send(&get("/openapi/v3/apis/metrics.k8s.io/v1beta1")).await.body;
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().filter(|p| p.contains("pods")).collect();
    assert_eq!(
        paths,
        [
            &format!("{METRICS}/namespaces/{{namespace}}/pods"),
            &format!("{METRICS}/namespaces/{{namespace}}/pods/{{name}}"),
            &format!("{METRICS}/pods")
        ]
    );
    let two = api.send(&get("/openapi/v2")).await.body;
    let schema = &two["definitions"]["io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"];
    assert_eq!(schema["properties"]["containers"]["type"], "array", "{schema}");
}

#[tokio::test]
async fn view_role_can_read_metrics() {
    let (api, _) = start_api().await;
    api.check(get(POD_METRICS).with_user("ann", &[]), 403, json!({"reason": "Forbidden"})).await;
    let role = json!({"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"});
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "ann"}], "roleRef": role});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    api.check(post(bindings, &binding), 201, json!({})).await;
    api.check(get(POD_METRICS).with_user("ann", &[]), 200, json!({"items": [{}, {}]})).await;
    api.check(get(format!("{METRICS}/nodes")).with_user("ann", &[]), 403, json!({})).await;
    let aggregation_label = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
    let labels = json!({aggregation_label("view"): "true", aggregation_label("edit"): "true", aggregation_label("admin"): "true"});
    let rule =
        json!({"apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader";
    api.check(get(path), 200, json!({"metadata": {"labels": labels}, "rules": [rule]})).await;
}

#[tokio::test]
async fn metrics_are_served_as_protobuf() {
    let (api, _) = start_api().await;
    let request = get(format!("{METRICS}/nodes/n")).header("accept", "application/vnd.kubernetes.protobuf");
    let (content_type, text) = api.text(&request).await;
    assert_eq!(content_type, "application/vnd.kubernetes.protobuf");
    assert!(text.starts_with("k8s") && text.contains("NodeMetrics") && text.contains("1500m"), "{text}");
}
