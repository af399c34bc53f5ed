//! Desired replicas of a metric.

use super::{super::behavior::tolerances, *};
use serde_json::from_value;

const STARTING: &str = "did not receive metrics for targeted pods (pods might be unready)";

/// `target` is the target utilization in percent; the expected values are replicas and current utilization.
#[track_caller]
fn check(pods: &[Arc<PodSummary>], values: &[i64], target: i32, expected: Result<(i32, i32), &str>) {
    let replicas = i32::try_from(pods.len()).unwrap();
    let counted = calculator(replicas, pods).by_utilization(&samples(values), target, "cpu", None);
    let counted = counted.map(|(replicas, used)| (replicas, used.percent)).map_err(|error| error.to_string());
    assert_eq!(counted, expected.map_err(str::to_owned));
}

#[test]
fn replicas_are_scaled_by_usage_ratio_rounded_up() {
    check(&pods(3), &[600, 600, 600], 30, Ok((6, 60)));
    check(&pods(3), &[150, 150, 150], 30, Ok((2, 15)));
    check(&pods(2), &[700, 800], 50, Ok((3, 75)));
    check(&pods(3), &[300, 200, 250], 50, Ok((2, 25)));
    check(&pods(4), &[0, 0, 0, 0], 50, Ok((0, 0)));
    check(&pods(3), &[10_000, 10_000, 10_000], 50, Ok((60, 1000)));
}

#[test]
fn usage_within_tolerance_keeps_replicas() {
    check(&pods(3), &[540, 540, 540], 50, Ok((3, 54)));
    check(&pods(3), &[460, 460, 460], 50, Ok((3, 46)));
    check(&pods(3), &[560, 560, 560], 50, Ok((4, 56)));
    let pods = pods(3);
    let custom = Tolerances { down: 0.4, up: 0.0 };
    let calculator = Calculator { tolerances: custom, ..calculator(3, &pods) };
    let counted = |values: &[i64]| calculator.by_utilization(&samples(values), 50, "cpu", None).unwrap().0;
    assert_eq!((counted(&[510, 510, 510]), counted(&[310, 310, 310])), (4, 3));
}

#[test]
fn pods_without_metrics_dampen_the_change() {
    // Scale-up: as if they used nothing.
    check(&pods(4), &[1000, 1000, 1000], 50, Ok((6, 100)));
    // Scale-down: as if they used their whole request, or the target.
    check(&pods(4), &[100, 100, 100], 50, Ok((3, 10)));
    check(&pods(4), &[300, 300, 300], 150, Ok((2, 30)));
    // The direction is never reversed.
    check(&pods(4), &[600], 50, Ok((4, 60)));
    check(&pods(4), &[400], 50, Ok((4, 40)));
    check(&pods(2), &[500], 50, Ok((2, 50)));
}

#[test]
fn unready_pods_count_as_unused_for_scale_up() {
    let pending = json!({"status": {"phase": "Pending"}});
    let mut some = pods(2);
    some.push(pod("2", &pending));
    check(&some, &[900, 900], 50, Ok((4, 90)));
    // Unready Pods are ignored for scale-down.
    check(&some, &[100, 100], 50, Ok((1, 10)));
    check(&[pod("0", &pending)], &[900], 50, Err(STARTING));
}

#[test]
fn failed_and_terminating_pods_are_ignored() {
    let mut some = pods(2);
    some.push(pod("2", &json!({"status": {"phase": "Failed"}})));
    some.push(pod("3", &json!({"metadata": {"deletionTimestamp": seconds(NOW)}})));
    check(&some, &[750, 750, 9000, 9000], 50, Ok((3, 75)));
}

#[test]
fn missing_metrics_are_an_error() {
    check(&[], &[], 50, Err("no pods returned by selector while calculating replica count"));
    check(&pods(2), &[], 50, Err(STARTING));
    let bare = pod("0", &json!({"spec": {"containers": [{"name": "c"}]}}));
    check(&[bare], &[500], 50, Err("missing request for cpu in container c of Pod 0"));
    let nothing = pod("0", &json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "0"}}}]}}));
    check(&[nothing], &[500], 50, Err("no metrics returned matched known pods"));
}

/// Checks whether a Pod counts, by its start, readiness, readiness change and measurement, in seconds before now.
#[track_caller]
fn check_start(started: i64, ready: &str, since: i64, measured: i64, expected: bool) {
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": seconds(NOW - since)});
    let one = [pod("0", &json!({"status": {"startTime": seconds(NOW - started), "conditions": [condition]}}))];
    let mut samples = samples(&[500]);
    samples.get_mut("0").unwrap().at = at(NOW - measured);
    let counted = calculator(1, &one).by_utilization(&samples, 50, "cpu", None);
    assert_eq!(counted.is_ok(), expected, "{counted:?}");
    // Memory usage does not depend on the start.
    assert!(calculator(1, &one).by_utilization(&samples, 50, "memory", None).is_ok());
}

#[test]
fn cpu_usage_during_initialization_is_ignored() {
    // Within five minutes: measured for a whole window (30 s) since it became ready.
    check_start(60, "True", 50, 30, false);
    check_start(60, "True", 50, 20, true);
    check_start(60, "False", 50, 10, false);
    check_start(299, "True", 20, 0, false);
    check_start(300, "True", 20, 0, true);
    // After that: unless it was never ready.
    check_start(400, "False", 380, 0, false);
    check_start(400, "False", 370, 0, true);
    let unknown = [pod("0", &json!({"status": {"conditions": []}}))];
    assert!(calculator(1, &unknown).by_utilization(&samples(&[500]), 50, "cpu", None).is_err());
}

#[test]
fn container_resource_metric_uses_one_container() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let containers = json!([{"name": "a", "resources": resources("2")}, {"name": "b"}]);
    let one = [pod("0", &json!({"spec": {"containers": containers}}))];
    let counted = calculator(1, &one).by_utilization(&samples(&[1000]), 25, "cpu", Some("a")).unwrap();
    assert_eq!((counted.0, counted.1.percent, counted.1.average), (2, 50, 1000));
}

#[track_caller]
fn check_average(pods: &[Arc<PodSummary>], values: &[i64], target: i64, expected: (i32, i64)) {
    let replicas = i32::try_from(pods.len()).unwrap();
    assert_eq!(calculator(replicas, pods).by_average(&samples(values), target, false), Ok(expected));
}

#[test]
fn average_value_is_compared_with_its_target() {
    check_average(&pods(3), &[20_000, 10_000, 30_000], 10_000, (6, 20_000));
    check_average(&pods(3), &[20_000, 10_000, 30_000], 19_000, (3, 20_000));
    check_average(&pods(4), &[10_000, 10_000], 40_000, (3, 10_000));
    check_average(&pods(4), &[90_000, 90_000], 30_000, (6, 90_000));
    check_average(&pods(2), &[i64::MAX, i64::MAX], 1, (i32::MAX, i64::MAX));
}

#[test]
fn object_value_is_compared_with_its_target() {
    let mut some = pods(3);
    some.push(pod("3", &json!({"status": {"phase": "Pending", "conditions": []}})));
    let by_value = |replicas, usage, target| calculator(replicas, &some).by_value(usage, target);
    assert_eq!((by_value(4, 20, 10), by_value(4, 105, 100), by_value(4, 1, 100)), (Ok(6), Ok(4), Ok(1)));
    // Scaling from and to zero.
    assert_eq!((by_value(0, 20, 10), by_value(0, 21, 10), by_value(0, 0, 10)), (Ok(2), Ok(3), Ok(0)));
    assert_eq!(by_value(4, i64::MAX, 1), Ok(i32::MAX));
    let error = calculator(4, &[]).by_value(20, 10).unwrap_err();
    assert!(error.to_string().starts_with("unable to calculate ready pods: no pods"));
}

#[test]
fn object_value_is_divided_by_replicas() {
    let by_value_per_pod = |replicas, usage, target| calculator(replicas, &[]).by_value_per_pod(usage, target);
    assert_eq!(
        (by_value_per_pod(4, 900, 100), by_value_per_pod(4, 410, 100), by_value_per_pod(4, 101, 100)),
        ((9, 225), (4, 103), (2, 26))
    );
    assert_eq!((by_value_per_pod(0, 900, 100), by_value_per_pod(0, 0, 100)), ((9, 0), (0, 0)));
    assert_eq!(by_value_per_pod(1, i64::MAX, 1), (i32::MAX, i64::MAX));
}

#[test]
fn autoscaler_tolerances_override_the_defaults() {
    let with_behavior = |behavior: Value| tolerances(Some(&from_value(behavior).unwrap()));
    let default = Tolerances::default();
    assert_eq!((tolerances(None), with_behavior(json!({"scaleUp": {}}))), (default, default));
    assert_eq!(with_behavior(json!({"scaleUp": {"tolerance": "50m"}})), Tolerances { up: 0.05, ..default });
    assert_eq!(with_behavior(json!({"scaleDown": {"tolerance": "0"}})), Tolerances { down: 0.0, ..default });
}
