//! Prometheus metrics and access to them.

use crate::common::*;
use serde_json::json;

/// Returns the values of the samples that start with this prefix.
fn sample_values(text: &str, name: &str, labels: &[&str]) -> Vec<f64> {
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label));
    text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn requests_are_counted_by_verb_and_resource() {
    let api = TestApi::new().await;
    for name in ["a", "b"] {
        api.create_config_map(name, json!({})).await;
    }
    api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})), 409, json!({})).await;
    api.check(get(format!("{CONFIG_MAPS}/a")), 200, json!({})).await;
    api.check(get("/api/v1/configmaps"), 200, json!({})).await;
    let watch = api.watch("/api/v1/configmaps?watch=true").await;
    let (content_type, text) = api.text(&get("/metrics")).await;
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    let maps = "resource=\"configmaps\"";
    let total = |labels: &[&str]| sample_values(&text, "apiserver_request_total", &[labels, &[maps]].concat());
    assert_eq!(total(&["code=\"201\"", "verb=\"POST\"", "scope=\"resource\""]), [2.0]);
    assert_eq!(total(&["code=\"409\"", "verb=\"POST\""]), [1.0]);
    assert_eq!(total(&["verb=\"GET\"", "group=\"\"", "version=\"v1\""]), [1.0]);
    assert_eq!(total(&["verb=\"LIST\"", "scope=\"cluster\""]), [1.0]);
    let took = |suffix: &str, labels: &[&str]| {
        sample_values(
            &text,
            &format!("apiserver_request_duration_seconds_{suffix}"),
            &[labels, &[maps, "verb=\"POST\""]].concat(),
        )
    };
    assert_eq!((took("count", &[]), took("bucket", &["le=\"+Inf\""])), (vec![3.0], vec![3.0]));
    assert!(took("sum", &[])[0] > 0.0);
    let lasting = |text: &str| sample_values(text, "apiserver_longrunning_requests", &[maps, "verb=\"WATCH\""]);
    assert_eq!(lasting(&text), [1.0]);
    drop(watch);
    let (_, text) = api.text(&get("/metrics")).await;
    assert_eq!(lasting(&text), [0.0]);
    assert_eq!(sample_values(&text, "apiserver_storage_objects", &[maps]), [2.0]);
    assert_eq!(sample_values(&text, "apiserver_current_inflight_requests", &["readOnly"]), [0.0]);
    assert!(
        sample_values(&text, "apiserver_flowcontrol_dispatched_requests_total", &["flow_schema=\"exempt\""])[0] > 5.0
    );
    for name in ["process_resident_memory_bytes ", "process_cpu_seconds_total "] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}");
    }
}

#[tokio::test]
async fn metrics_access_requires_rbac() {
    let api = TestApi::new().await;
    let ann = |request: TestRequest| request.with_user("ann", &["devs"]);
    api.check(ann(get("/metrics")), 403, json!({})).await;
    let watcher = json!([{"kind": "User", "name": "ann"}]);
    api.grant_cluster_role("metrics", watcher, json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}])).await;
    let (_, text) = api.text(&ann(get("/metrics"))).await;
    assert!(text.starts_with("# HELP apiserver_request_total"), "{text}");
}
