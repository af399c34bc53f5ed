//! Limits the desired replicas: stabilization, rate of change, and bounds (`horizontal.go`).

use super::{
    behavior::{Behavior, DOWNSCALE_STABILIZATION},
    conditions::{Conditions, ReasonAndMessage},
    history::History,
};
use tokio::time::Instant;

/// Current replicas and bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// `spec.replicas` of the scale.
    pub(super) replicas: i32,
    pub(super) min_replicas: i32,
    pub(super) max_replicas: i32,
}

const WITHIN: ReasonAndMessage<'_> = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: ReasonAndMessage<'_> =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: ReasonAndMessage<'_> =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST: ReasonAndMessage<'_> =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: ReasonAndMessage<'_> =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const READY: ReasonAndMessage<'_> = ("ReadyForNewScale", "recommended size matches current size");
const STABLE_UP: ReasonAndMessage<'_> = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const STABLE_DOWN: ReasonAndMessage<'_> = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);

impl Bounds {
    /// Returns the replicas to scale to, when metrics require `desired`.
    pub(super) fn normalize(
        self,
        desired: i32,
        behavior: Option<&Behavior>,
        history: &mut History,
        conditions: &mut Conditions,
        now: Instant,
    ) -> i32 {
        let (stable, message) = match behavior {
            None => (stabilize_without_behavior(desired, history, now), STABLE_DOWN),
            Some(behavior) => self.stabilize_with_behavior(desired, behavior, history, now),
        };
        conditions.set_able_to_scale(true, if stable == desired { READY } else { message });
        let (replicas, message) = match behavior {
            None => self.convert_desired_replicas_with_rules(stable),
            Some(behavior) => self.convert_with_behavior_rate(stable, behavior, history, now),
        };
        conditions.set_scaling_limited(replicas != stable, message);
        replicas
    }

    /// Limits to the bounds, and to twice the replicas (`convertDesiredReplicasWithRules`), because a metric may be
    /// wrong.
    fn convert_desired_replicas_with_rules(self, desired: i32) -> (i32, ReasonAndMessage<'static>) {
        let limit = self.replicas.saturating_mul(2).max(4);
        let (max_replicas, message) =
            if self.max_replicas > limit { (limit, TOO_FAST) } else { (self.max_replicas, TOO_MANY) };
        if desired < self.min_replicas {
            (self.min_replicas, TOO_FEW)
        } else if desired > max_replicas {
            (max_replicas, message)
        } else {
            (desired, WITHIN)
        }
    }

    /// Stabilizes to the lowest recent recommendation for scale-up, and the highest for scale-down
    /// (`stabilizeRecommendationWithBehaviors`).
    fn stabilize_with_behavior(
        self,
        desired: i32,
        behavior: &Behavior,
        history: &mut History,
        now: Instant,
    ) -> (i32, ReasonAndMessage<'static>) {
        let up = history.recommended_after(behavior.up.window, now).fold(desired, i32::min);
        let down = history.recommended_after(behavior.down.window, now).fold(desired, i32::max);
        history.recommend(desired, behavior.up.window.max(behavior.down.window), now);
        let message = if desired >= self.replicas { STABLE_UP } else { STABLE_DOWN };
        (self.replicas.max(up).min(down), message)
    }

    /// Limits the change by the policies (`convertDesiredReplicasWithBehaviorRate`).
    fn convert_with_behavior_rate(
        self,
        desired: i32,
        behavior: &Behavior,
        history: &History,
        now: Instant,
    ) -> (i32, ReasonAndMessage<'static>) {
        if desired > self.replicas {
            let limit = behavior.up.scale_up_limit(self.replicas, history, now).max(self.replicas);
            let (max_replicas, message) =
                if self.max_replicas > limit { (limit, TOO_FAST) } else { (self.max_replicas, TOO_MANY) };
            if desired > max_replicas {
                return (max_replicas, message);
            }
        } else if desired < self.replicas {
            let limit = behavior.down.scale_down_limit(self.replicas, history, now).min(self.replicas);
            let (min_replicas, message) =
                if self.min_replicas < limit { (limit, TOO_FAST_DOWN) } else { (self.min_replicas, TOO_FEW) };
            if desired < min_replicas {
                return (min_replicas, message);
            }
        }
        (desired, WITHIN)
    }
}

/// Returns the highest recent recommendation (`stabilizeRecommendation`).
fn stabilize_without_behavior(desired: i32, history: &mut History, now: Instant) -> i32 {
    let stable = history.recommended(DOWNSCALE_STABILIZATION, now).fold(desired, i32::max);
    history.recommend(desired, DOWNSCALE_STABILIZATION, now);
    stable
}
