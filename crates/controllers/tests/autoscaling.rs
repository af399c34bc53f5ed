//! Tests of the autoscaler against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::{Clock, Options};
use fake_api::FakeApi;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const WIDGET: &str = "apis/example.com/v1/namespaces/x/widgets/web";
const AUTOSCALERS: &str = "apis/autoscaling/v2/namespaces/x/horizontalpodautoscalers";
const METRICS: &str = "apis/metrics.k8s.io/v1beta1/namespaces/x/pods";

fn start() -> FakeApi {
    let (began, midnight) = (Instant::now(), "2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a time"));
    let now = move || midnight + SignedDuration::try_from(began.elapsed()).expect("a duration");
    let options = Options { clock: Clock::new(now, TimeZone::UTC), ..Options::default() };
    let api = FakeApi::new();
    tokio::spawn(controllers::run(api.client(), options, CancellationToken::new()));
    api
}

/// Creates a custom object with a scale, and two Pods that have been ready since the day before.
fn widget(api: &FakeApi, replicas: i32, selector: &str) {
    let status = json!({"replicas": replicas, "selector": selector});
    let object = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "x"},
        "spec": {"replicas": replicas}, "status": status});
    api.put(WIDGET, object);
    let yesterday = "2025-12-31T00:00:00Z";
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": yesterday});
    for name in ["one", "two"] {
        let pod = json!({"metadata": {"name": name, "namespace": "x", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "startTime": yesterday, "conditions": [ready]}});
        api.put(&format!("api/v1/namespaces/x/pods/{name}"), pod);
    }
}

/// Sets the CPU usage of each Pod.
fn uses(api: &FakeApi, cpu: &str) {
    for name in ["one", "two"] {
        let usage = json!([{"name": "c", "usage": {"cpu": cpu, "memory": "1Mi"}}]);
        let metrics = json!({"metadata": {"name": name, "namespace": "x"}, "timestamp": "2026-01-01T00:00:00Z",
            "window": "30s", "containers": usage});
        api.put(&format!("{METRICS}/{name}"), metrics);
    }
}

fn autoscaler(api: &FakeApi, name: &str, change: &Value) {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let mut spec = json!({"minReplicas": 1, "maxReplicas": 10,
        "scaleTargetRef": {"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]});
    for (field, value) in change.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let path = format!("{AUTOSCALERS}/{name}");
    let mut object = api.get(&path).unwrap_or_else(|| json!({"metadata": {"name": name, "namespace": "x"}}));
    object["spec"] = spec;
    api.put(&path, object);
}

fn replicas(api: &FakeApi) -> Value {
    api.get(WIDGET).expect("a widget")["spec"]["replicas"].clone()
}

fn status(api: &FakeApi, name: &str) -> Value {
    api.get(&format!("{AUTOSCALERS}/{name}")).unwrap_or_default()["status"].clone()
}

/// Returns reason and message of a condition.
fn condition(api: &FakeApi, name: &str, type_: &str) -> (String, String) {
    let status = status(api, name);
    let mut all = status["conditions"].as_array().into_iter().flatten();
    let condition = all.find(|c| c["type"] == type_).cloned().unwrap_or_default();
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (format!("{} {}", text("status"), text("reason")), text("message"))
}

fn reason(api: &FakeApi, name: &str, type_: &str) -> String {
    condition(api, name, type_).0
}

fn recorded_events(api: &FakeApi, reason: &str) -> Vec<String> {
    let events = api.list("api/v1/namespaces/x/events");
    let some = events.iter().filter(|event| event["reason"] == reason);
    some.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn missing_container_is_named_in_the_condition() {
    let api = start();
    widget(&api, 2, "app=web");
    uses(&api, "800m");
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let source = json!({"name": "cpu", "container": "other", "target": target});
    autoscaler(&api, "a", &json!({"metrics": [{"type": "ContainerResource", "containerResource": source}]}));
    let message = "failed to get container metrics: container other not present in metrics for pod x/one";
    api.wait_until("condition", |api| condition(api, "a", "ScalingActive").1.contains(message)).await;
    assert_eq!(
        (reason(&api, "a", "ScalingActive").as_str(), replicas(&api)),
        ("False FailedGetContainerResourceMetric", json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn cpu_usage_scales_up_and_down() {
    let (api, began) = (start(), Instant::now());
    widget(&api, 2, "app=web");
    uses(&api, "800m");
    autoscaler(&api, "a", &json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}));
    api.wait_until("there are more", |api| replicas(api) == 4).await;
    assert!(began.elapsed() < Duration::from_secs(1), "at once");
    api.wait_until("condition", |api| reason(api, "a", "AbleToScale") == "True SucceededRescale").await;
    let metric = "cpu resource utilization (percentage of request)";
    assert_eq!(recorded_events(&api, "SuccessfulRescale"), [format!("New size: 4; reason: {metric} above target")]);
    let status = status(&api, "a");
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(2), &json!(4)));
    assert!(status["lastScaleTime"].as_str().is_some_and(|time| time.starts_with("2026-01-01T00:00:0")), "{status}");
    let current = json!({"averageUtilization": 80, "averageValue": "800m"});
    assert_eq!(
        status["currentMetrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}])
    );
    assert_eq!(reason(&api, "a", "ScalingActive"), "True ValidMetricFound");
    assert_eq!(reason(&api, "a", "ScalingLimited"), "False DesiredWithinRange");
    uses(&api, "100m");
    api.wait_until("there are fewer", |api| replicas(api) == 1).await;
    let waited = began.elapsed().as_millis();
    assert!((15_000..16_000).contains(&waited), "{waited} ms");
    assert_eq!(recorded_events(&api, "SuccessfulRescale")[1], "New size: 1; reason: All metrics below target");
    api.wait_until("condition", |api| {
        condition(api, "a", "AbleToScale").1.ends_with("to update the target scale to 1")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn scale_down_waits_for_the_default_stabilization() {
    let (api, began) = (start(), Instant::now());
    widget(&api, 4, "app=web");
    uses(&api, "100m");
    autoscaler(&api, "a", &json!({}));
    api.wait_until("it waits", |api| reason(api, "a", "AbleToScale") == "True ScaleDownStabilized").await;
    api.wait_until("there are fewer", |api| replicas(api) == 1).await;
    let waited = began.elapsed().as_secs();
    assert!((300..=330).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn missing_metrics_after_start_are_retried_silently() {
    let (api, began) = (start(), Instant::now());
    widget(&api, 2, "app=web");
    autoscaler(&api, "a", &json!({}));
    sleep(Duration::from_secs(3)).await;
    uses(&api, "800m");
    api.wait_until("there are more", |api| replicas(api) == 4).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(recorded_events(&api, "FailedGetResourceMetric"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn hanging_metrics_server_delays_no_other_autoscaler() {
    let api = start();
    widget(&api, 2, "app=web");
    api.hang_next(&format!("GET {METRICS}"));
    autoscaler(&api, "a", &json!({}));
    sleep(Duration::from_millis(100)).await;
    let others: Vec<String> = (0..10).map(|n| format!("other-{n}")).collect();
    let target = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "gone"});
    others.iter().for_each(|name| autoscaler(&api, name, &json!({"scaleTargetRef": target})));
    sleep(Duration::from_secs(1)).await;
    let done = others.iter().filter(|name| reason(&api, name, "AbleToScale") == "False FailedGetScale").count();
    assert_eq!(done, 10);
}

#[tokio::test(start_paused = true)]
async fn unchanged_autoscaler_status_is_not_written() {
    let api = start();
    widget(&api, 2, "app=web");
    autoscaler(&api, "a", &json!({}));
    api.wait_until("condition", |api| reason(api, "a", "ScalingActive") == "False FailedGetResourceMetric").await;
    let message = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    let output = format!("the HPA was unable to compute the replica count: {message}");
    assert_eq!(condition(&api, "a", "ScalingActive").1, output);
    assert_eq!(reason(&api, "a", "AbleToScale"), "True SucceededGetScale");
    sleep(Duration::from_secs(590)).await;
    assert_eq!(recorded_events(&api, "FailedGetResourceMetric"), [message], "the same again counts up");
    let whole = "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: ";
    assert_eq!(recorded_events(&api, "FailedComputeMetricsReplicas"), [format!("{whole}{message}")]);
    let written = format!("PUT {AUTOSCALERS}/a/status");
    assert_eq!(api.writes().iter().filter(|line| **line == written).count(), 1);
    // A repeated warning is rate-limited.
    let counts = api.list("api/v1/namespaces/x/events").into_iter().map(|event| event["count"].as_i64().unwrap_or(0));
    assert_eq!(counts.sum::<i64>(), 26);
    assert_eq!(replicas(&api), 2);
}

#[tokio::test(start_paused = true)]
async fn changed_bounds_apply_at_once() {
    let api = start();
    widget(&api, 2, "app=web");
    uses(&api, "500m");
    autoscaler(&api, "a", &json!({}));
    api.wait_until("it is content", |api| reason(api, "a", "AbleToScale") == "True ReadyForNewScale").await;
    let began = Instant::now();
    autoscaler(&api, "a", &json!({"minReplicas": 5}));
    api.wait_until("there are as many", |api| replicas(api) == 5).await;
    assert!(began.elapsed() < Duration::from_secs(1), "at once");
    let reason = "New size: 5; reason: Current number of replicas below Spec.MinReplicas";
    assert_eq!(recorded_events(&api, "SuccessfulRescale"), [reason]);
    autoscaler(&api, "a", &json!({"maxReplicas": 3}));
    api.wait_until("there are no more", |api| replicas(api) == 3).await;
}

#[tokio::test(start_paused = true)]
async fn target_at_zero_replicas_is_not_scaled() {
    let api = start();
    widget(&api, 0, "app=web");
    uses(&api, "900m");
    autoscaler(&api, "a", &json!({}));
    api.wait_until("condition", |api| reason(api, "a", "ScalingActive") == "False ScalingDisabled").await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(replicas(&api), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_target_messages_match_upstream() {
    let api = start();
    let check = async |name: &str, api_version: &str, kind: &str, text: &str| {
        let target = json!({"apiVersion": api_version, "kind": kind, "name": "web"});
        autoscaler(&api, name, &json!({"scaleTargetRef": target}));
        api.wait_until("condition", |api| reason(api, name, "AbleToScale") == "False FailedGetScale").await;
        let message = format!("the HPA controller was unable to get the target's current scale: {text}");
        assert_eq!(condition(&api, name, "AbleToScale").1, message);
    };
    check("kind", "example.com/v1", "Gadget", "no matches for kind \"Gadget\" in group \"example.com\"").await;
    check("group", "nowhere.org/v1", "Widget", "no matches for kind \"Widget\" in group \"nowhere.org\"").await;
    check("version", "a/b/c", "Widget", "unexpected GroupVersion string: a/b/c").await;
    check("object", "example.com/v1", "Widget", "NotFound").await;
    // Another version of the same group is the same target.
    widget(&api, 12, "app=web");
    let target = json!({"apiVersion": "example.com/v9", "kind": "widget", "name": "web"});
    autoscaler(&api, "object", &json!({"scaleTargetRef": target}));
    api.wait_until("it is found", |api| replicas(api) == 10).await;
}

#[tokio::test(start_paused = true)]
async fn ambiguous_selectors_disable_both_autoscalers() {
    let api = start();
    widget(&api, 2, "app=web");
    uses(&api, "500m");
    for name in ["a", "b"] {
        autoscaler(&api, name, &json!({}));
    }
    for name in ["a", "b"] {
        api.wait_until("condition", |api| reason(api, name, "ScalingActive") == "False AmbiguousSelector").await;
        let message = "pods by selector app=web are controlled by multiple HPAs: [x/a x/b]";
        assert_eq!(condition(&api, name, "ScalingActive").1, message, "{name}");
    }
    uses(&api, "900m");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(replicas(&api), 2);
    api.delete(&format!("{AUTOSCALERS}/b"));
    api.wait_until("the other does", |api| replicas(api) == 4).await;
}

#[tokio::test(start_paused = true)]
async fn missing_or_invalid_scale_selector_is_reported() {
    let api = start();
    widget(&api, 2, "");
    autoscaler(&api, "a", &json!({}));
    api.wait_until("condition", |api| reason(api, "a", "ScalingActive") == "False InvalidSelector").await;
    assert_eq!(condition(&api, "a", "ScalingActive").1, "the HPA target's scale is missing a selector");
    assert_eq!(recorded_events(&api, "SelectorRequired"), ["selector is required"]);
    assert_eq!(recorded_events(&api, "FailedComputeMetricsReplicas"), ["selector is required"]);
    widget(&api, 2, "app in web");
    let wrong = "couldn't convert selector into a corresponding internal selector object: ";
    api.wait_until("condition", |api| condition(api, "a", "ScalingActive").1.starts_with(wrong)).await;
}

#[tokio::test(start_paused = true)]
async fn failed_scale_update_is_retried() {
    let api = start();
    widget(&api, 2, "app=web");
    uses(&api, "800m");
    api.refuse_next(&format!("PUT {WIDGET}/scale"), 409);
    autoscaler(&api, "a", &json!({}));
    api.wait_until("condition", |api| reason(api, "a", "AbleToScale") == "False FailedUpdateScale").await;
    let metric = "cpu resource utilization (percentage of request)";
    assert_eq!(
        recorded_events(&api, "FailedRescale"),
        [format!("New size: 4; reason: {metric} above target; error: Conflict")]
    );
    assert_eq!(replicas(&api), 2);
    api.wait_until("there are more", |api| replicas(api) == 4).await;
}

#[tokio::test(start_paused = true)]
async fn custom_and_external_metrics_scale() {
    let api = start();
    widget(&api, 2, "app=web");
    let average = json!({"type": "AverageValue", "averageValue": "10"});
    let hits = json!([{"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": average}}]);
    let item = |pod: &str, value: &str| {
        json!({"describedObject": {"kind": "Pod", "name": pod}, "value": value,
        "metric": {"name": "hits"}, "timestamp": "2026-01-01T00:00:00Z"})
    };
    let values = json!({"items": [item("one", "10"), item("two", "20")]});
    api.put("apis/custom.metrics.k8s.io/v1beta2/namespaces/x/pods/*", values);
    autoscaler(&api, "a", &json!({"metrics": hits}));
    api.wait_until("it is measured", |api| replicas(api) == 3).await;
    assert_eq!(recorded_events(&api, "SuccessfulRescale"), ["New size: 3; reason: pods metric hits above target"]);
    let queue = json!([{"type": "External", "external": {"metric": {"name": "queue"}, "target": average}}]);
    api.put("apis/external.metrics.k8s.io/v1beta1/namespaces/x/queue/all", json!({"metadata": {}, "value": "60"}));
    autoscaler(&api, "a", &json!({"metrics": queue}));
    api.wait_until("it is measured", |api| replicas(api) == 6).await;
    let gadget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"});
    let value = json!({"type": "Value", "value": "1k"});
    let load =
        json!([{"type": "Object", "object": {"metric": {"name": "load"}, "describedObject": gadget, "target": value}}]);
    let values = json!({"items": [item("web", "5k")]});
    api.put("apis/custom.metrics.k8s.io/v1beta2/namespaces/x/widgets.example.com/web", values);
    autoscaler(&api, "a", &json!({"metrics": load}));
    api.wait_until("it is measured", |api| replicas(api) == 10).await;
    assert!(
        recorded_events(&api, "SuccessfulRescale")
            .contains(&"New size: 10; reason: Widget metric load above target".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn unresponsive_metrics_server_times_out() {
    let api = start();
    widget(&api, 2, "app=web");
    uses(&api, "800m");
    // Missing metrics are not reported right after the start.
    sleep(Duration::from_secs(15)).await;
    api.hang_next(&format!("GET {METRICS}"));
    let began = Instant::now();
    autoscaler(&api, "a", &json!({}));
    api.wait_until("condition", |api| condition(api, "a", "ScalingActive").1.ends_with("context deadline exceeded"))
        .await;
    assert!(began.elapsed() < Duration::from_secs(11));
    api.wait_until("it is measured", |api| replicas(api) == 4).await;
    assert!(began.elapsed() < Duration::from_secs(27));
}
