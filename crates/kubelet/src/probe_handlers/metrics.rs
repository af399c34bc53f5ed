//! Probe metrics for `/metrics/probes` (upstream's `pkg/kubelet/prober`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lifecycle::{ProbeKind, ProbeOutcome};
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// Label names and values.
type Labels = Vec<(&'static str, String)>;

/// Upper bounds in seconds: the default buckets of Prometheus' client library.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Probe metrics of all Pods.
#[derive(Debug)]
pub(crate) struct ProbeMetrics {
    outcomes: Family<Labels, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    /// Label sets of each Pod, by UID.
    labels_by_pod: Mutex<HashMap<String, HashSet<Labels>>>,
}

impl Default for ProbeMetrics {
    fn default() -> Self {
        let durations = Family::new_with_constructor((|| Histogram::new(DEFAULT_BUCKETS)) as fn() -> Histogram);
        Self { outcomes: Family::default(), durations, labels_by_pod: Mutex::default() }
    }
}

impl ProbeMetrics {
    /// Records the outcome and duration of a probe.
    pub(crate) fn record(
        &self,
        pod: &ObjectMeta,
        container: &str,
        kind: ProbeKind,
        outcome: &ProbeOutcome,
        took: Duration,
    ) {
        let word = |w: &Option<String>| w.clone().unwrap_or_default();
        let result = match outcome {
            ProbeOutcome::Success | ProbeOutcome::Warning(_) => "successful",
            ProbeOutcome::Failure(_) => "failed",
            ProbeOutcome::Unknown(_) => "unknown",
        };
        let durations = vec![
            ("probe_type", format!("{kind:?}")),
            ("container", container.to_owned()),
            ("pod", word(&pod.name)),
            ("namespace", word(&pod.namespace)),
        ];
        let mut outcomes = durations.clone();
        outcomes.extend([("pod_uid", word(&pod.uid)), ("result", result.to_owned())]);
        self.outcomes.get_or_create_owned(&outcomes).inc();
        self.durations.get_or_create_owned(&durations).observe(took.as_secs_f64());
        self.labels_by_pod.lock().entry(word(&pod.uid)).or_default().extend([outcomes, durations]);
    }

    /// Removes the metrics of a deleted Pod.
    pub(crate) fn remove_pod(&self, uid: &str) {
        for labels in self.labels_by_pod.lock().remove(uid).into_iter().flatten() {
            self.outcomes.remove(&labels);
            self.durations.remove(&labels);
        }
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Cumulative number of a liveness, readiness or startup probe for a container by result";
        registry.register("prober_probe", help, self.outcomes.clone());
        let help = "Duration in seconds for a probe response";
        registry.register("prober_probe_duration_seconds", help, self.durations.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode_registry;

    fn encode(metrics: &ProbeMetrics) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        metrics.register(&mut registry);
        encode_registry(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn probe_metrics_are_removed_with_their_pod() {
        let metrics = ProbeMetrics::default();
        let pod = |uid: &str| ObjectMeta {
            name: Some("p".to_owned()),
            namespace: Some("x".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        for outcome in [ProbeOutcome::Success, ProbeOutcome::Success, ProbeOutcome::Failure("no".to_owned())] {
            metrics.record(&pod("1"), "c", ProbeKind::Liveness, &outcome, Duration::from_millis(20));
        }
        let text = encode(&metrics);
        let of_pod = "probe_type=\"Liveness\",container=\"c\",pod=\"p\",namespace=\"x\"";
        for line in [
            format!("prober_probe_total{{{of_pod},pod_uid=\"1\",result=\"successful\"}} 2"),
            format!("prober_probe_total{{{of_pod},pod_uid=\"1\",result=\"failed\"}} 1"),
            format!("prober_probe_duration_seconds_bucket{{le=\"0.025\",{of_pod}}} 3"),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        metrics.remove_pod("1");
        assert!(!encode(&metrics).contains("pod=\"p\""));
        assert!(metrics.labels_by_pod.lock().is_empty());
    }
}
