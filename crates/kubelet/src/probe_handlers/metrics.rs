//! Probe metrics for `/metrics/probes` (upstream's `pkg/kubelet/prober`).

use api::metrics::{HistogramSample, Labels, MetricsPage};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lifecycle::{ProbeKind, ProbeOutcome};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// Upper bounds in seconds: the default buckets of Prometheus' client library.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Probe metrics of all Pods.
#[derive(Debug, Default)]
pub(crate) struct ProbeMetrics(Mutex<Series>);

#[derive(Debug, Default)]
struct Series {
    outcomes: HashMap<Labels, u64>,
    durations: HashMap<Labels, HistogramSample>,
    /// Label sets of each Pod, by UID.
    labels_by_pod: HashMap<String, HashSet<Labels>>,
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
        let mut series = self.0.lock();
        *series.outcomes.entry(outcomes.clone()).or_default() += 1;
        let histogram = || HistogramSample::new(&DEFAULT_BUCKETS);
        series.durations.entry(durations.clone()).or_insert_with(histogram).observe(took.as_secs_f64());
        series.labels_by_pod.entry(word(&pod.uid)).or_default().extend([outcomes, durations]);
    }

    /// Removes the metrics of a deleted Pod.
    pub(crate) fn remove_pod(&self, uid: &str) {
        let mut series = self.0.lock();
        for labels in series.labels_by_pod.remove(uid).into_iter().flatten() {
            series.outcomes.remove(&labels);
            series.durations.remove(&labels);
        }
    }

    /// Adds the metrics to a page.
    pub(crate) fn add(&self, page: &mut MetricsPage) {
        let series = self.0.lock();
        let outcomes = series.outcomes.iter().map(|(labels, count)| (labels.clone(), *count as f64));
        let help = "Cumulative number of a liveness, readiness or startup probe for a container by result";
        page.counter("prober_probe_total", help, outcomes);
        let durations = series.durations.iter().map(|(labels, sample)| (labels.clone(), sample.clone()));
        page.histogram("prober_probe_duration_seconds", "Duration in seconds for a probe response", durations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(metrics: &ProbeMetrics) -> String {
        let mut page = MetricsPage::default();
        metrics.add(&mut page);
        page.encode()
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
        let (of_pod, probe) = ("container=\"c\",namespace=\"x\",pod=\"p\"", "probe_type=\"Liveness\"");
        for line in [
            format!("prober_probe_total{{{of_pod},pod_uid=\"1\",{probe},result=\"successful\"}} 2"),
            format!("prober_probe_total{{{of_pod},pod_uid=\"1\",{probe},result=\"failed\"}} 1"),
            format!("prober_probe_duration_seconds_bucket{{{of_pod},{probe},le=\"0.025\"}} 3"),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        metrics.remove_pod("1");
        assert!(!encode(&metrics).contains("pod=\"p\""));
        assert!(metrics.0.lock().labels_by_pod.is_empty());
    }
}
