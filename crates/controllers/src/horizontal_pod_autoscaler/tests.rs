//! Table tests of the autoscaler.

mod proposals;
mod replica_counts;
mod scaling_rates;

use super::calculator::{Calculator, Sample, Samples, Tolerances};
use crate::pod_summary::PodSummary;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;

const NOW: i64 = 10_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn seconds(number: i64) -> String {
    at(number).to_string()
}

/// Returns a Pod that has been ready for long and requests one CPU, with changes.
fn pod(name: &str, change: &Value) -> Arc<PodSummary> {
    let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": seconds(NOW - 5_000)});
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "x", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Running", "startTime": seconds(NOW - 5_010), "conditions": [ready]},
    });
    for (part, fields) in change.as_object().into_iter().flatten() {
        for (field, value) in fields.as_object().into_iter().flatten() {
            pod[part][field] = value.clone();
        }
    }
    Arc::new(PodSummary::from_pod(serde_json::from_value(pod).unwrap()))
}

/// Returns Pods called `0`, `1` and so on.
fn pods(count: usize) -> Vec<Arc<PodSummary>> {
    (0..count).map(|n| pod(&n.to_string(), &Value::Null)).collect()
}

/// Returns values of the first Pods in thousandths.
fn samples(values: &[i64]) -> Samples {
    let sample = |value| Sample { value, at: at(NOW - 10), window: SignedDuration::from_secs(30) };
    values.iter().enumerate().map(|(n, value)| (n.to_string(), sample(*value))).collect()
}

fn calculator(replicas: i32, pods: &[Arc<PodSummary>]) -> Calculator<'_> {
    Calculator { replicas, current: replicas, pods, tolerances: Tolerances::default(), now: at(NOW) }
}
