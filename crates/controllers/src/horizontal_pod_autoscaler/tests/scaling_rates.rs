//! Rate of change of the replicas.

use super::{
    super::{behavior::Behavior, conditions::Conditions, history::History, normalize::Bounds},
    *,
};
use serde_json::from_value;
use std::time::Duration;
use tokio::time::Instant;

/// An autoscaler over time.
struct Scaled {
    behavior: Option<Behavior>,
    history: History,
    bounds: Bounds,
    start: Instant,
}

impl Scaled {
    fn new(replicas: i32, behavior: &Value) -> Self {
        let behavior = (!behavior.is_null()).then(|| Behavior::of(&from_value(behavior.clone()).unwrap()));
        let (mut history, start) = (History::default(), Instant::now());
        history.record_initial_recommendation(replicas, start);
        Self { behavior, history, bounds: Bounds { replicas, min_replicas: 1, max_replicas: 100 }, start }
    }

    /// Checks the replicas and conditions when metrics require a number after some seconds.
    #[track_caller]
    fn check(&mut self, second: u64, desired: i32, expected: i32, able: &str, limited: &str) {
        let (now, mut conditions) = (self.start + Duration::from_secs(second), Conditions::new(vec![], at(NOW)));
        let got = self.bounds.normalize(desired, self.behavior.as_ref(), &mut self.history, &mut conditions, now);
        let all = conditions.into_list().unwrap();
        let reason = |at: usize| all[at].reason.as_deref().unwrap();
        assert_eq!((got, reason(0), reason(1)), (expected, able, limited));
        let is_limited = if limited == "DesiredWithinRange" { "False" } else { "True" };
        assert_eq!((all[0].status.as_str(), all[1].status.as_str()), ("True", is_limited));
        if let Some(behavior) = self.behavior.as_ref().filter(|_| got != self.bounds.replicas) {
            let rules = if got > self.bounds.replicas { &behavior.up } else { &behavior.down };
            self.history.record_scale_event(self.bounds.replicas, got, rules.longest_policy_period(), now);
        }
        self.bounds.replicas = got;
    }
}

const READY: &str = "ReadyForNewScale";
const DOWN: &str = "ScaleDownStabilized";
const UP: &str = "ScaleUpStabilized";
const WITHIN: &str = "DesiredWithinRange";

#[test]
fn default_scale_up_is_limited_to_double_or_four() {
    let mut scaled = Scaled::new(1, &Value::Null);
    scaled.check(0, 50, 4, READY, "ScaleUpLimit");
    scaled.check(15, 50, 8, READY, "ScaleUpLimit");
    // Earlier recommendations still apply.
    scaled.check(30, 12, 16, DOWN, "ScaleUpLimit");
    let mut scaled = Scaled::new(12, &Value::Null);
    scaled.bounds.max_replicas = 20;
    scaled.check(0, 30, 20, READY, "TooManyReplicas");
    scaled.check(15, 20, 20, DOWN, "TooManyReplicas");
}

#[test]
fn default_scale_down_is_stabilized_for_five_minutes() {
    let mut scaled = Scaled::new(10, &Value::Null);
    scaled.check(15, 4, 10, DOWN, WITHIN);
    scaled.check(100, 6, 10, DOWN, WITHIN);
    scaled.check(300, 3, 10, DOWN, WITHIN);
    scaled.check(301, 3, 6, DOWN, WITHIN);
    scaled.check(400, 3, 6, DOWN, WITHIN);
    scaled.check(402, 0, 3, DOWN, WITHIN);
    scaled.check(900, 0, 1, READY, "TooFewReplicas");
}

#[test]
fn empty_behavior_has_upstream_defaults() {
    let mut scaled = Scaled::new(1, &json!({}));
    // Four Pods or twice as many, whichever is more, every 15 s.
    scaled.check(1, 50, 5, READY, "ScaleUpLimit");
    scaled.check(2, 50, 5, READY, "ScaleUpLimit");
    scaled.check(16, 50, 10, READY, "ScaleUpLimit");
    scaled.check(31, 50, 20, READY, "ScaleUpLimit");
    scaled.check(46, 21, 21, READY, WITHIN);
    // Scale-down is unlimited, after the default window.
    scaled.check(60, 2, 21, DOWN, WITHIN);
    scaled.check(100, 2, 21, DOWN, WITHIN);
    scaled.check(346, 2, 2, READY, WITHIN);
}

#[test]
fn scale_down_selects_the_largest_policy_by_default() {
    let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 10, "periodSeconds": 60}]);
    let mut scaled =
        Scaled::new(80, &json!({"scaleDown": {"stabilizationWindowSeconds": 0, "policies": policies.clone()}}));
    scaled.check(0, 10, 72, READY, "ScaleDownLimit");
    scaled.check(30, 10, 72, READY, "ScaleDownLimit");
    scaled.check(60, 10, 64, READY, "ScaleDownLimit");
    // Ten percent is more than four Pods, until it is less.
    for (second, expected) in [(120, 57), (180, 51), (240, 45), (300, 40), (360, 36), (420, 32)] {
        scaled.check(second, 10, expected, READY, "ScaleDownLimit");
    }
    let minimum = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": policies});
    let mut scaled = Scaled::new(80, &json!({"scaleDown": minimum}));
    scaled.check(0, 10, 76, READY, "ScaleDownLimit");
}

#[test]
fn scale_up_selects_the_max_or_min_policy() {
    let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 10, "periodSeconds": 60}]);
    let with = |select: &str| json!({"scaleUp": {"selectPolicy": select, "policies": policies}});
    Scaled::new(80, &with("Max")).check(0, 100, 88, READY, "ScaleUpLimit");
    Scaled::new(80, &with("Min")).check(0, 100, 84, READY, "ScaleUpLimit");
    Scaled::new(80, &with("Disabled")).check(0, 100, 80, READY, "ScaleUpLimit");
    // Ten percent of three, rounded up, is one.
    Scaled::new(3, &with("Min")).check(0, 100, 4, READY, "ScaleUpLimit");
}

#[test]
fn disabled_scale_down_keeps_replicas() {
    let mut scaled =
        Scaled::new(10, &json!({"scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled"}}));
    scaled.check(0, 2, 10, READY, "ScaleDownLimit");
    scaled.check(9_000, 2, 10, READY, "ScaleDownLimit");
}

#[test]
fn replicas_removed_in_a_period_can_return_within_it() {
    let rules = |value: i32| json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": value, "periodSeconds": 100}]});
    let mut scaled = Scaled::new(20, &json!({"scaleUp": rules(2), "scaleDown": rules(5)}));
    scaled.check(0, 1, 15, READY, "ScaleDownLimit");
    // There were 20 at the start of the period: up to 22.
    scaled.check(50, 40, 22, READY, "ScaleUpLimit");
    // Seven were added since, five removed.
    scaled.check(99, 40, 22, READY, "ScaleUpLimit");
}

#[test]
fn scale_up_window_uses_the_lowest_recommendation() {
    let mut scaled = Scaled::new(2, &json!({"scaleUp": {"stabilizationWindowSeconds": 60}}));
    scaled.check(15, 8, 2, UP, WITHIN);
    scaled.check(30, 5, 2, UP, WITHIN);
    scaled.check(60, 9, 5, UP, WITHIN);
    scaled.check(89, 9, 5, UP, WITHIN);
    scaled.check(90, 9, 9, READY, WITHIN);
}

#[test]
fn client_supplied_replicas_do_not_overflow() {
    let huge = json!([{"type": "Pods", "value": i32::MAX, "periodSeconds": i32::MAX},
        {"type": "Percent", "value": i32::MAX, "periodSeconds": 1}]);
    let rules = json!({"stabilizationWindowSeconds": i32::MAX, "policies": huge});
    let mut scaled = Scaled::new(i32::MAX - 1, &json!({"scaleUp": rules, "scaleDown": rules}));
    scaled.bounds = Bounds { replicas: i32::MAX - 1, min_replicas: i32::MAX, max_replicas: i32::MAX };
    scaled.check(0, i32::MAX, i32::MAX - 1, UP, WITHIN);
    let mut scaled = Scaled::new(i32::MAX, &Value::Null);
    scaled.bounds.max_replicas = i32::MAX;
    scaled.check(0, i32::MAX, i32::MAX, READY, WITHIN);
    scaled.check(1, i32::MIN, i32::MAX, DOWN, WITHIN);
}
