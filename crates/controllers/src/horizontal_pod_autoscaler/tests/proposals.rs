//! Combination of several metrics, and messages.

use super::{
    super::{
        conditions::Conditions,
        metrics::{MetricsError, PodMetrics, Reading, sample, selector_text},
        normalize::Bounds,
        proposal::{MetricsResult, compute},
        scale_target::group_of,
        status::ScalingMode,
    },
    *,
};
use k8s_openapi::api::autoscaling::v2::MetricSpec;
use serde_json::{from_value, to_value};

type Read = Result<Reading, MetricsError>;

fn cpu(percent: i32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn metric(name: &str) -> Value {
    json!({"name": name})
}

/// Returns the result for three Pods, and the condition `ScalingActive`.
fn computed(all: Vec<(Value, Read)>) -> (MetricsResult, Value) {
    let (specs, readings): (Vec<Value>, Vec<Read>) = all.into_iter().unzip();
    let specs: Vec<MetricSpec> = specs.into_iter().map(|spec| from_value(spec).unwrap()).collect();
    let (pods, mut conditions) = (pods(3), Conditions::new(vec![], at(NOW)));
    let computed = compute(&specs, readings, &calculator(3, &pods), "x", &mut conditions);
    (computed, to_value(conditions.into_list().unwrap_or_default()).unwrap()[0].clone())
}

fn using(milli: i64) -> Read {
    Ok(Reading::Pods(samples(&[milli, milli, milli])))
}

/// Text of [`MetricsError::Timeout`].
const TIMEOUT: &str = "unable to fetch metrics: context deadline exceeded";

#[track_caller]
fn check(spec: Value, read: Read, replicas: i32, name: &str, status: Value) {
    let (computed, condition) = computed(vec![(spec, read)]);
    assert_eq!(computed.desired, Some((replicas, name.to_owned())));
    assert_eq!(to_value(&computed.statuses[0]).unwrap(), status);
    let message = format!("the HPA was able to successfully calculate a replica count from {name}");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("ValidMetricFound")));
    assert_eq!((condition["message"].as_str().unwrap(), computed.error), (message.as_str(), None));
}

#[test]
fn each_metric_type_has_its_name_and_status() {
    let current = json!({"averageUtilization": 60, "averageValue": "600m"});
    check(
        cpu(30),
        using(600),
        6,
        "cpu resource utilization (percentage of request)",
        json!({"type": "Resource", "resource": {"name": "cpu", "current": current}}),
    );
    let target = json!({"type": "AverageValue", "averageValue": "300m"});
    check(
        json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}),
        using(600),
        6,
        "cpu resource",
        json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "600m"}}}),
    );
    let target = json!({"type": "Utilization", "averageUtilization": 30});
    check(
        json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": target}}),
        using(600),
        6,
        "cpu container resource utilization (percentage of request)",
        json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "current": current}}),
    );
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    check(
        json!({"type": "Pods", "pods": {"metric": metric("hits"), "target": target}}),
        using(20_000),
        6,
        "pods metric hits",
        json!({"type": "Pods", "pods": {"metric": metric("hits"), "current": {"averageValue": "20"}}}),
    );
}

#[test]
fn object_and_external_metrics_have_names_and_status() {
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"});
    let with_target = |target: Value| json!({"type": "Object", "object": {"metric": metric("hits"), "describedObject": object, "target": target}});
    let is = |current: Value| json!({"type": "Object", "object": {"metric": metric("hits"), "describedObject": object, "current": current}});
    let (value, average) =
        (json!({"type": "Value", "value": "10"}), json!({"type": "AverageValue", "averageValue": "10"}));
    check(
        with_target(value.clone()),
        Ok(Reading::Object(20_000)),
        6,
        "Ingress metric hits",
        is(json!({"value": "20"})),
    );
    check(
        with_target(average.clone()),
        Ok(Reading::Object(50_000)),
        5,
        "external metric hits(nil)",
        is(json!({"averageValue": "16667m"})),
    );
    let queue = json!({"name": "queue", "selector": {"matchLabels": {"a": "b"}}});
    let with_target = |target: Value| json!({"type": "External", "external": {"metric": queue, "target": target}});
    let is = |current: Value| json!({"type": "External", "external": {"metric": queue, "current": current}});
    let name = "external metric queue(&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},})";
    check(with_target(value), Ok(Reading::External(vec![12_000, 8_000])), 6, name, is(json!({"value": "20"})));
    check(with_target(average), Ok(Reading::External(vec![50_000])), 5, name, is(json!({"averageValue": "16667m"})));
}

#[test]
fn negative_metric_values_stay_negative() {
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    let spec = json!({"type": "External", "external": {"metric": metric("queue"), "target": target}});
    let (computed, _) = computed(vec![(spec, Ok(Reading::External(vec![5_000, -36_000])))]);
    let current = json!({"averageValue": "-10333m"});
    assert_eq!(to_value(&computed.statuses[0]).unwrap()["external"]["current"], current);
    let desired = computed.desired.clone().unwrap().0;
    let bounds = Bounds { replicas: 3, min_replicas: 1, max_replicas: 9 };
    assert_eq!(
        (desired, bounds.desired_replicas(&computed).unwrap()),
        (-3, (0, "All metrics below target".to_owned()))
    );
}

#[test]
fn metric_with_most_replicas_wins() {
    let hits = json!({"type": "Pods", "pods": {"metric": metric("hits"), "target": {"type": "AverageValue", "averageValue": "10"}}});
    let (computed, _) = computed(vec![(cpu(50), using(200)), (hits, using(30_000)), (cpu(50), using(700))]);
    assert_eq!(computed.desired, Some((9, "pods metric hits".to_owned())));
    assert_eq!(computed.statuses.len(), 3);
}

#[test]
fn failed_metric_prevents_scale_down() {
    let unknown = || (cpu(50), Err(MetricsError::Timeout));
    let message = format!("failed to get cpu utilization: unable to get metrics for resource cpu: {TIMEOUT}");
    let error = format!("first error is: failed to get cpu resource metric value: {message}");
    let (fewer, condition) = computed(vec![unknown(), (cpu(50), using(200))]);
    assert_eq!(fewer.desired, None);
    assert_eq!(fewer.error, Some(format!("invalid metrics (1 invalid out of 2), {error}")));
    assert_eq!(fewer.warnings, [("FailedGetResourceMetric", message.clone())]);
    assert_eq!(to_value(&fewer.statuses[0]).unwrap(), json!({"type": ""}));
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("FailedGetResourceMetric")));
    assert_eq!(condition["message"], format!("the HPA was unable to compute the replica count: {message}"));
    // Scale-up and no change are still possible.
    let (up, condition) = computed(vec![unknown(), (cpu(50), using(900))]);
    assert_eq!((up.desired.unwrap().0, up.error.is_some(), &condition["status"]), (6, true, &json!("True")));
    assert_eq!(computed(vec![unknown(), (cpu(50), using(500))]).0.desired.unwrap().0, 3);
    let (none, _) = computed(vec![unknown(), unknown()]);
    assert_eq!((none.desired, none.error), (None, Some(format!("invalid metrics (2 invalid out of 2), {error}"))));
}

#[track_caller]
fn check_failure(spec: Value, read: Read, reason: &str, message: &str, error: &str) {
    let (computed, condition) = computed(vec![(spec, read)]);
    assert_eq!((computed.warnings[0].0, computed.warnings[0].1.as_str()), (reason, message));
    let whole = format!("invalid metrics (1 invalid out of 1), first error is: {error}");
    assert_eq!((computed.error, &condition["reason"]), (Some(whole), &json!(reason)));
}

#[test]
fn failed_metric_messages_match_upstream() {
    let timeout = || Err(MetricsError::Timeout);
    let object = json!({"kind": "Service", "name": "web"});
    let with_source = |kind: &str, field: &str, source: Value| json!({"type": kind, field: source});
    let value = json!({"type": "Value", "value": "1"});
    let average = json!({"type": "AverageValue", "averageValue": "1"});
    let message = &format!("unable to get metric hits: Service on x web/{TIMEOUT}");
    let source = json!({"metric": metric("hits"), "describedObject": object, "target": value});
    let error = format!("failed to get object metric value: {message}");
    check_failure(with_source("Object", "object", source), timeout(), "FailedGetObjectMetric", message, &error);
    let source = json!({"metric": metric("hits"), "describedObject": object, "target": average});
    let error = format!("failed to get object metric value: failed to get hits object metric: {message}");
    check_failure(with_source("Object", "object", source), timeout(), "FailedGetObjectMetric", message, &error);
    let message = &format!("unable to get metric hits: {TIMEOUT}");
    let source = json!({"metric": metric("hits"), "target": average});
    let error = format!("failed to get pods metric value: {message}");
    check_failure(with_source("Pods", "pods", source), timeout(), "FailedGetPodsMetric", message, &error);
    let message = &format!("unable to get external metric x/queue/nil: {TIMEOUT}");
    let source = json!({"metric": metric("queue"), "target": value});
    let error = format!("failed to get queue external metric value: failed to get external metric queue: {message}");
    check_failure(with_source("External", "external", source), timeout(), "FailedGetExternalMetric", message, &error);
    let source = json!({"metric": metric("queue"), "target": average});
    let error = format!("failed to get queue external metric value: failed to get queue external metric: {message}");
    check_failure(with_source("External", "external", source), timeout(), "FailedGetExternalMetric", message, &error);
    let message = &format!("failed to get cpu usage: unable to get metrics for resource cpu: {TIMEOUT}");
    let source = json!({"name": "cpu", "container": "c", "target": average});
    let error = format!("failed to get c container metric value: {message}");
    let reason = "FailedGetContainerResourceMetric";
    check_failure(with_source("ContainerResource", "containerResource", source), timeout(), reason, message, &error);
    let message = "unknown metric source type \"What\"";
    check_failure(json!({"type": "What"}), timeout(), "InvalidMetricSourceType", message, message);
}

#[test]
fn invalid_metric_selector_is_reported() {
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    let message = "\"Near\" is not a valid label selector operator";
    let average = json!({"type": "AverageValue", "averageValue": "1"});
    let spec = json!({"type": "Pods", "pods": {"metric": {"name": "hits", "selector": selector}, "target": average}});
    let error = format!("failed to get pods metric value: {message}");
    check_failure(spec, Err(MetricsError::Timeout), "FailedGetPodsMetric", message, &error);
    let text = |selector: Value| selector_text(Some(&from_value(selector).unwrap()));
    let all = json!({"matchLabels": {"c": "d"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["x", "y"]},
        {"key": "e", "operator": "Exists"}, {"key": "a", "operator": "DoesNotExist"}, {"key": "f", "operator": "NotIn", "values": ["z"]}]});
    assert_eq!(text(all).unwrap(), "!a,b in (x,y),c=d,e,f notin (z)");
    assert_eq!((selector_text(None), text(json!({}))), (Ok(String::new()), Ok(String::new())));
}

#[test]
fn pod_usage_needs_values_of_all_containers() {
    let check = |containers: Value, container: Option<&str>, expected: Option<i64>| {
        let all = json!({"metadata": {"name": "p"}, "timestamp": seconds(NOW), "window": "1m10.5s", "containers": containers});
        let read: PodMetrics = from_value(all).unwrap();
        let sample = sample(&read, "cpu", container);
        assert_eq!(sample.as_ref().map(|(_, sample)| sample.value), expected);
        let window = SignedDuration::from_millis(70_500);
        assert!(sample.is_none_or(|(name, sample)| name == "p" && sample.window == window && sample.at == at(NOW)));
    };
    let uses = |name: &str, usage: Value| json!({"name": name, "usage": usage});
    let both = json!([uses("a", json!({"cpu": "100m"})), uses("b", json!({"cpu": "5500000n"}))]);
    check(both.clone(), None, Some(106));
    check(both.clone(), Some("a"), Some(100));
    check(both, Some("c"), None);
    check(json!([uses("a", json!({"cpu": "1"})), uses("b", json!({"memory": "1Ki"}))]), None, None);
    check(json!([]), None, None);
}

#[test]
fn bounds_and_zero_replicas_precede_metrics() {
    let course = |replicas, min_replicas, max_replicas| Bounds { replicas, min_replicas, max_replicas }.mode();
    assert_eq!(course(0, 1, 5), ScalingMode::Disabled);
    assert_eq!(course(0, 0, 5), ScalingMode::ByMetrics);
    assert_eq!(course(6, 1, 5), ScalingMode::OutOfBounds(5, "Current number of replicas above Spec.MaxReplicas"));
    assert_eq!(course(1, 2, 5), ScalingMode::OutOfBounds(2, "Current number of replicas below Spec.MinReplicas"));
    assert_eq!((course(2, 2, 5), course(5, 2, 5)), (ScalingMode::ByMetrics, ScalingMode::ByMetrics));
}

#[test]
fn condition_keeps_transition_time_with_its_status() {
    let mut conditions = Conditions::new(vec![], at(100));
    conditions.set_able_to_scale(true, ("SucceededGetScale", "one"));
    let mut conditions = Conditions::new(conditions.into_list().unwrap(), at(200));
    conditions.set_able_to_scale(true, ("ReadyForNewScale", "two"));
    conditions.set_scaling_active(false, ("ScalingDisabled", "three"));
    let all = to_value(conditions.into_list().unwrap()).unwrap();
    assert_eq!((&all[0]["lastTransitionTime"], &all[0]["reason"]), (&json!(seconds(100)), &json!("ReadyForNewScale")));
    assert_eq!((&all[1]["lastTransitionTime"], &all[1]["status"]), (&json!(seconds(200)), &json!("False")));
}

#[test]
fn target_api_version_is_parsed_as_upstream() {
    assert_eq!(
        (group_of("apps/v1"), group_of("v1"), group_of("")),
        (Ok("apps".into()), Ok(String::new()), Ok(String::new()))
    );
    assert_eq!(group_of("a/b/c").unwrap_err().to_string(), "unexpected GroupVersion string: a/b/c");
}
