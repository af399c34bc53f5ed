//! How many Pods more or less than it should have a Deployment may have while it is rolled out.

use crate::int_or_string::{Rounding, scaled_value};
use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many there should be.
pub(super) fn replicas(spec: &DeploymentSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

pub(super) fn is_rolling(spec: &DeploymentSpec) -> bool {
    spec.strategy.as_ref().is_none_or(|s| s.type_.as_deref().unwrap_or("RollingUpdate") == "RollingUpdate")
}

/// `ResolveFenceposts`: both cannot be 0, or nothing would ever happen.
fn surge_and_unavailable(spec: &DeploymentSpec) -> (i32, i32) {
    let rolling = spec.strategy.as_ref().and_then(|s| s.rolling_update.clone()).unwrap_or_default();
    let quarter = || IntOrString::String("25%".to_owned());
    let surge = scaled_value(&rolling.max_surge.unwrap_or_else(quarter), replicas(spec), Rounding::Up);
    let unavailable = scaled_value(&rolling.max_unavailable.unwrap_or_else(quarter), replicas(spec), Rounding::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// How many more than it should have.
pub(super) fn max_surge(spec: &DeploymentSpec) -> i32 {
    if is_rolling(spec) { surge_and_unavailable(spec).0 } else { 0 }
}

/// How many it may have at once.
pub(super) fn max_replicas(spec: &DeploymentSpec) -> i32 {
    replicas(spec).saturating_add(max_surge(spec))
}

/// How many of those that it should have may not be available.
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
    fn surge_is_rounded_up_and_unavailability_down() {
        check(1, json!("25%"), json!("25%"), (1, 0));
        check(10, json!("25%"), json!("25%"), (3, 2));
        check(3, json!(2), json!(1), (2, 1));
        check(2, json!(0), json!(5), (0, 2));
        check(0, json!("25%"), json!("25%"), (0, 0));
    }

    #[test]
    fn one_may_be_missing_when_neither_allows_anything() {
        check(3, json!(0), json!("10%"), (0, 1));
    }

    #[test]
    fn recreate_knows_neither() {
        let spec = json!({"replicas": 4, "strategy": {"type": "Recreate"}, "selector": {}, "template": {}});
        let spec = serde_json::from_value(spec).unwrap();
        assert_eq!((max_surge(&spec), max_unavailable(&spec)), (0, 0));
    }
}
