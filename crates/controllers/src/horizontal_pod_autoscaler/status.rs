//! What is to be done about a scale, and what an autoscaler's status says then (`reconcileAutoscaler`, `setStatus`).

use super::conditions::Conditions;
use super::normalize::Bounds;
use super::proposal::Computed;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// How many there should be is known so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalingMode {
    /// Somebody has scaled to nothing: nobody else scales.
    Disabled,
    /// The bounds say it.
    OutOfBounds(i32, &'static str),
    /// Metrics say it.
    ByMetrics,
}

impl Bounds {
    pub(super) fn of(spec: &HorizontalPodAutoscalerSpec, replicas: i32) -> Self {
        Self { replicas, least: spec.min_replicas.unwrap_or(1), most: spec.max_replicas }
    }

    pub(super) fn mode(self) -> ScalingMode {
        if self.replicas == 0 && self.least != 0 {
            ScalingMode::Disabled
        } else if self.replicas > self.most {
            ScalingMode::OutOfBounds(self.most, "Current number of replicas above Spec.MaxReplicas")
        } else if self.replicas < self.least {
            ScalingMode::OutOfBounds(self.least, "Current number of replicas below Spec.MinReplicas")
        } else {
            ScalingMode::ByMetrics
        }
    }

    /// What metrics call for, before it is made one that may be, and why it would be another.
    pub(super) fn wanted(self, computed: &Computed) -> Option<(i32, String)> {
        let (desired, metric) = computed.desired.as_ref()?;
        let desired = (*desired).max(0);
        let why = match desired.cmp(&self.replicas) {
            std::cmp::Ordering::Greater => format!("{metric} above target"),
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
        };
        Some((desired, why))
    }
}

/// How many there are, should be, and what was measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Observation {
    pub(super) current: i32,
    /// What it was before, if that is not known now.
    pub(super) desired: Option<i32>,
    pub(super) metrics: Option<Vec<MetricStatus>>,
    /// When it was scaled, if it was.
    pub(super) scaled: Option<Time>,
}

/// The status; of an object that could not be read only the conditions are new.
pub(super) fn status(
    hpa: &HorizontalPodAutoscaler,
    found: Option<Observation>,
    conditions: Conditions,
) -> HorizontalPodAutoscalerStatus {
    let before = hpa.status.clone().unwrap_or_default();
    let conditions = conditions.into_list();
    let Some(found) = found else { return HorizontalPodAutoscalerStatus { conditions, ..before } };
    HorizontalPodAutoscalerStatus {
        // As it is stored: what is 0 is left out.
        current_replicas: Some(found.current).filter(|current| *current != 0),
        desired_replicas: found.desired.unwrap_or(before.desired_replicas),
        last_scale_time: found.scaled.or(before.last_scale_time),
        current_metrics: found.metrics.filter(|metrics| !metrics.is_empty()),
        observed_generation: hpa.metadata.generation,
        conditions,
    }
}
