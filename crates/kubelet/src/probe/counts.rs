//! How probes went, for `/metrics/probes` (`pkg/kubelet/prober`).

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

/// Names and values.
type Labels = Vec<(&'static str, String)>;

/// Upper bounds in seconds: those that Prometheus' own library has when nothing is said.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Of all Pods that are there.
#[derive(Debug)]
pub(crate) struct Counts {
    outcomes: Family<Labels, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    /// What there is of each Pod, by its UID.
    known: Mutex<HashMap<String, HashSet<Labels>>>,
}

impl Default for Counts {
    fn default() -> Self {
        let durations = Family::new_with_constructor((|| Histogram::new(BOUNDS)) as fn() -> Histogram);
        Self { outcomes: Family::default(), durations, known: Mutex::default() }
    }
}

impl Counts {
    /// A probe of this container of a Pod took so long, and said this.
    pub(crate) fn count(
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
        self.known.lock().entry(word(&pod.uid)).or_default().extend([outcomes, durations]);
    }

    /// The Pod is gone, and nobody asks for it any more.
    pub(crate) fn forget(&self, uid: &str) {
        for labels in self.known.lock().remove(uid).into_iter().flatten() {
            self.outcomes.remove(&labels);
            self.durations.remove(&labels);
        }
    }

    /// Adds what there is to a page.
    pub(crate) fn show(&self, page: &mut Registry) {
        let help = "Cumulative number of a liveness, readiness or startup probe for a container by result";
        page.register("prober_probe", help, self.outcomes.clone());
        let help = "Duration in seconds for a probe response";
        page.register("prober_probe_duration_seconds", help, self.durations.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode_registry;

    fn shown(counts: &Counts) -> String {
        let (mut page, mut text) = (Registry::default(), String::new());
        counts.show(&mut page);
        encode_registry(&mut text, &page).unwrap();
        text
    }

    #[test]
    fn probes_are_counted_by_what_they_said_until_their_pod_is_gone() {
        let counts = Counts::default();
        let pod = |uid: &str| ObjectMeta {
            name: Some("p".to_owned()),
            namespace: Some("x".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        for outcome in [ProbeOutcome::Success, ProbeOutcome::Success, ProbeOutcome::Failure("no".to_owned())] {
            counts.count(&pod("1"), "c", ProbeKind::Liveness, &outcome, Duration::from_millis(20));
        }
        let text = shown(&counts);
        let of_pod = "probe_type=\"Liveness\",container=\"c\",pod=\"p\",namespace=\"x\"";
        for line in [
            format!("prober_probe_total{{{of_pod},pod_uid=\"1\",result=\"successful\"}} 2"),
            format!("prober_probe_total{{{of_pod},pod_uid=\"1\",result=\"failed\"}} 1"),
            format!("prober_probe_duration_seconds_bucket{{le=\"0.025\",{of_pod}}} 3"),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        counts.forget("1");
        assert!(!shown(&counts).contains("pod=\"p\""));
        assert!(counts.known.lock().is_empty());
    }
}
