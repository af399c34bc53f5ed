//! Scaling behavior (`spec.behavior`), with upstream's defaults (`pkg/apis/autoscaling/v2/defaults.go`).

use super::{
    calculator::{Tolerances, ceil},
    history::History,
};
use api::resources::Amount;
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};
use std::time::Duration;
use tokio::time::Instant;

/// `--horizontal-pod-autoscaler-downscale-stabilization`.
pub(super) const DOWNSCALE_STABILIZATION: Duration = Duration::from_secs(300);

/// How to select from several policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SelectPolicy {
    /// The policy that allows the largest change.
    Max,
    Min,
    /// Scaling in this direction is disabled.
    Disabled,
}

/// Change that a policy allows per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolicyValue {
    Pods(i32),
    Percent(i32),
}

/// Scaling rules of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScalingRules {
    /// Stabilization window.
    pub(super) window: Duration,
    select: SelectPolicy,
    policies: Vec<(PolicyValue, Duration)>,
}

/// Scaling rules of both directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Behavior {
    pub(super) up: ScalingRules,
    pub(super) down: ScalingRules,
}

const PERIOD: Duration = Duration::from_secs(15);

impl Behavior {
    pub(super) fn of(behavior: &HorizontalPodAutoscalerBehavior) -> Self {
        let up = vec![(PolicyValue::Pods(4), PERIOD), (PolicyValue::Percent(100), PERIOD)];
        let up = ScalingRules { window: Duration::ZERO, select: SelectPolicy::Max, policies: up };
        let down = vec![(PolicyValue::Percent(100), PERIOD)];
        let down = ScalingRules { window: DOWNSCALE_STABILIZATION, select: SelectPolicy::Max, policies: down };
        Self { up: up.with(behavior.scale_up.as_ref()), down: down.with(behavior.scale_down.as_ref()) }
    }
}

impl ScalingRules {
    fn with(mut self, rules: Option<&HPAScalingRules>) -> Self {
        let Some(rules) = rules else { return self };
        if let Some(window) = rules.stabilization_window_seconds {
            self.window = seconds(window);
        }
        match rules.select_policy.as_deref() {
            Some("Disabled") => self.select = SelectPolicy::Disabled,
            Some("Min") => self.select = SelectPolicy::Min,
            _ => {}
        }
        if let Some(policies) = &rules.policies {
            let change =
                |kind: &str, value| if kind == "Pods" { PolicyValue::Pods(value) } else { PolicyValue::Percent(value) };
            self.policies = policies.iter().map(|p| (change(&p.type_, p.value), seconds(p.period_seconds))).collect();
        }
        self
    }

    /// Returns the longest period of the policies (`getLongestPolicyPeriod`).
    pub(super) fn longest_policy_period(&self) -> Duration {
        self.policies.iter().map(|(_, period)| *period).max().unwrap_or_default()
    }

    /// Returns the maximum number of replicas (`calculateScaleUpLimitWithScalingRules`).
    pub(super) fn scale_up_limit(&self, replicas: i32, history: &History, now: Instant) -> i32 {
        let proposals = self.policies.iter().map(|(change, period)| {
            let start = history.replicas_at_period_start(replicas, *period, now);
            match change {
                PolicyValue::Pods(value) => start.saturating_add(*value),
                // Rounded up: a fraction of a Pod would never become one.
                PolicyValue::Percent(value) => ceil(f64::from(start) * (1.0 + f64::from(*value) / 100.0)),
            }
        });
        match self.select {
            SelectPolicy::Disabled => replicas,
            SelectPolicy::Min => proposals.min().unwrap_or(i32::MAX),
            SelectPolicy::Max => proposals.max().unwrap_or(i32::MIN),
        }
    }

    /// Returns the minimum number of replicas (`calculateScaleDownLimitWithBehaviors`).
    pub(super) fn scale_down_limit(&self, replicas: i32, history: &History, now: Instant) -> i32 {
        let proposals = self.policies.iter().map(|(change, period)| {
            let start = history.replicas_at_period_start(replicas, *period, now);
            match change {
                PolicyValue::Pods(value) => start.saturating_sub(*value),
                PolicyValue::Percent(value) => trunc(f64::from(start) * (1.0 - f64::from(*value) / 100.0)),
            }
        });
        match self.select {
            SelectPolicy::Disabled => replicas,
            SelectPolicy::Min => proposals.max().unwrap_or(i32::MIN),
            SelectPolicy::Max => proposals.min().unwrap_or(i32::MAX),
        }
    }
}

/// Returns the autoscaler's own tolerances, or the defaults (KEP-4951).
pub(super) fn tolerances(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Tolerances {
    let policies = |rules: Option<&HPAScalingRules>| {
        let amount = Amount::try_from(rules?.tolerance.as_ref()?).ok()?;
        Some(amount.approximate())
    };
    let default = Tolerances::default();
    Tolerances {
        down: behavior.and_then(|b| policies(b.scale_down.as_ref())).unwrap_or(default.down),
        up: behavior.and_then(|b| policies(b.scale_up.as_ref())).unwrap_or(default.up),
    }
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

#[expect(clippy::cast_possible_truncation, reason = "what does not fit becomes the largest number")]
fn trunc(number: f64) -> i32 {
    number as i32
}
