//! `maxSurge` and `maxUnavailable` of a Deployment, as numbers.

use crate::int_or_string::{Rounding, scaled_value};
use k8s_openapi::{api::apps::v1::DeploymentSpec, apimachinery::pkg::util::intstr::IntOrString};

/// Returns `spec.replicas`, 1 by default.
pub(super) fn replicas(spec: &DeploymentSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

pub(super) fn is_rolling(spec: &DeploymentSpec) -> bool {
    spec.strategy.as_ref().is_none_or(|s| s.type_.as_deref().unwrap_or("RollingUpdate") == "RollingUpdate")
}

/// Resolves both values (`ResolveFenceposts`). If both are 0, one Pod may be unavailable: otherwise a rollout could
/// not progress.
fn surge_and_unavailable(spec: &DeploymentSpec) -> (i32, i32) {
    let rolling = spec.strategy.as_ref().and_then(|s| s.rolling_update.clone()).unwrap_or_default();
    let quarter = || IntOrString::String("25%".to_owned());
    let surge = scaled_value(&rolling.max_surge.unwrap_or_else(quarter), replicas(spec), Rounding::Up);
    let unavailable = scaled_value(&rolling.max_unavailable.unwrap_or_else(quarter), replicas(spec), Rounding::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// Returns `maxSurge`, 0 without a rolling update.
pub(super) fn max_surge(spec: &DeploymentSpec) -> i32 {
    if is_rolling(spec) { surge_and_unavailable(spec).0 } else { 0 }
}

/// Returns the number of Pods that may exist during a rollout.
pub(super) fn max_replicas(spec: &DeploymentSpec) -> i32 {
    replicas(spec).saturating_add(max_surge(spec))
}

/// Returns `maxUnavailable`, at most `spec.replicas`.
pub(super) fn max_unavailable(spec: &DeploymentSpec) -> i32 {
    if !is_rolling(spec) || replicas(spec) == 0 {
        return 0;
    }
    surge_and_unavailable(spec).1.min(replicas(spec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(replicas: i32, surge: Value, unavailable: Value, expected: (i32, i32)) {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let spec = json!({"replicas": replicas, "strategy": strategy, "selector": {}, "template": {}});
        let spec = serde_json::from_value(spec).unwrap();
        assert_eq!((max_surge(&spec), max_unavailable(&spec)), expected);
    }

    #[test]
    fn max_surge_rounds_up_and_max_unavailable_down() {
        check(1, json!("25%"), json!("25%"), (1, 0));
        check(10, json!("25%"), json!("25%"), (3, 2));
        check(3, json!(2), json!(1), (2, 1));
        check(2, json!(0), json!(5), (0, 2));
        check(0, json!("25%"), json!("25%"), (0, 0));
    }

    #[test]
    fn max_unavailable_is_one_when_both_resolve_to_zero() {
        check(3, json!(0), json!("10%"), (0, 1));
    }

    #[test]
    fn recreate_has_no_surge_or_unavailability() {
        let spec = json!({"replicas": 4, "strategy": {"type": "Recreate"}, "selector": {}, "template": {}});
        let spec = serde_json::from_value(spec).unwrap();
        assert_eq!((max_surge(&spec), max_unavailable(&spec)), (0, 0));
    }
}
