//! Mode and status of an autoscaler (`reconcileAutoscaler`, `setStatus`).

use super::{conditions::Conditions, normalize::Bounds, proposal::MetricsResult};
use k8s_openapi::{
    api::autoscaling::v2::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

/// How the desired replicas are determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalingMode {
    /// The target has zero replicas: autoscaling is disabled.
    Disabled,
    /// The current replicas are out of bounds.
    OutOfBounds(i32, &'static str),
    /// By metrics.
    ByMetrics,
}

impl Bounds {
    pub(super) fn of(spec: &HorizontalPodAutoscalerSpec, replicas: i32) -> Self {
        Self { replicas, min_replicas: spec.min_replicas.unwrap_or(1), max_replicas: spec.max_replicas }
    }

    pub(super) fn mode(self) -> ScalingMode {
        if self.replicas == 0 && self.min_replicas != 0 {
            ScalingMode::Disabled
        } else if self.replicas > self.max_replicas {
            ScalingMode::OutOfBounds(self.max_replicas, "Current number of replicas above Spec.MaxReplicas")
        } else if self.replicas < self.min_replicas {
            ScalingMode::OutOfBounds(self.min_replicas, "Current number of replicas below Spec.MinReplicas")
        } else {
            ScalingMode::ByMetrics
        }
    }

    /// Returns the replicas that metrics require, and the reason for a change.
    pub(super) fn desired_replicas(self, computed: &MetricsResult) -> Option<(i32, String)> {
        let (desired, metric) = computed.desired.as_ref()?;
        let desired = (*desired).max(0);
        let message = match desired.cmp(&self.replicas) {
            std::cmp::Ordering::Greater => format!("{metric} above target"),
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
        };
        Some((desired, message))
    }
}

/// Observed and desired replicas, and metrics.
#[derive(Debug, Clone, Default)]
pub(super) struct ScaleObservation {
    pub(super) current: i32,
    /// `None` keeps the previous value.
    pub(super) desired: Option<i32>,
    pub(super) metrics: Option<Vec<MetricStatus>>,
    /// Time of a scale update.
    pub(super) scaled: Option<Time>,
}

/// Returns the status. If the scale could not be read, only the conditions change.
pub(super) fn status(
    hpa: &HorizontalPodAutoscaler,
    found: Option<ScaleObservation>,
    conditions: Conditions,
) -> HorizontalPodAutoscalerStatus {
    let old_status = hpa.status.clone().unwrap_or_default();
    let conditions = conditions.into_list();
    let Some(found) = found else { return HorizontalPodAutoscalerStatus { conditions, ..old_status } };
    HorizontalPodAutoscalerStatus {
        // A zero is omitted, as in the stored form.
        current_replicas: Some(found.current).filter(|current| *current != 0),
        desired_replicas: found.desired.unwrap_or(old_status.desired_replicas),
        last_scale_time: found.scaled.or(old_status.last_scale_time),
        current_metrics: found.metrics.filter(|metrics| !metrics.is_empty()),
        observed_generation: hpa.metadata.generation,
        conditions,
    }
}
