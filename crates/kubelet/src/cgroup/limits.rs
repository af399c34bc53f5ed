//! What a cgroup may use (upstream's `ResourceConfigForPod`).

use super::values;
use api::{
    quantity::Amount,
    resources::{self, Amounts, QosClass, Side},
};
use k8s_openapi::api::core::v1::PodSpec;

/// What a cgroup may use; `None` leaves it as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Limits {
    /// Relative CPU weight on the scale of cgroup v1.
    pub(super) shares: i64,
    /// µs of CPU time per period, and the period in µs.
    pub(super) quota: Option<(i64, i64)>,
    /// Bytes.
    pub(super) memory: Option<i64>,
    /// Processes.
    pub(super) pids: Option<i64>,
}

impl Limits {
    pub(super) fn shares(shares: i64) -> Self {
        Self { shares, ..Self::default() }
    }

    /// All Pods together get what the node has for them.
    pub(super) fn of_all_pods(allocatable: &Amounts, enforce: bool) -> Self {
        let amount = |name: &str| allocatable.get(name).copied().filter(|a| !a.is_zero());
        Self {
            shares: values::shares(amount("cpu").unwrap_or_default()),
            memory: amount("memory").filter(|_| enforce).map(Amount::value),
            ..Self::default()
        }
    }

    /// The larger of both; what one of them leaves as it is stays so.
    pub(super) fn or_more(&self, other: &Self) -> Self {
        let larger = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.max(b));
        Self {
            shares: self.shares.max(other.shares),
            quota: self.quota.zip(other.quota).map(|(a, b)| a.max(b)),
            memory: larger(self.memory, other.memory),
            pids: larger(self.pids, other.pids),
        }
    }

    /// The sum of the containers, and a limit only where every container has one.
    pub(super) fn of_pod(spec: &PodSpec, period: i64) -> Self {
        if resources::qos_class(spec) == QosClass::BestEffort {
            return Self::shares(values::MIN_SHARES);
        }
        let sum = resources::pod(spec, Side::Limits);
        let limit = |name: &str| sum.get(name).copied().filter(|_| is_limited(spec, name));
        Self {
            shares: values::shares(requested_cpu(spec)),
            quota: limit("cpu").map(|cpu| (values::quota(cpu, period), period)),
            memory: limit("memory").map(Amount::value),
            pids: None,
        }
    }
}

pub(super) fn requested_cpu(spec: &PodSpec) -> Amount {
    resources::pod(spec, Side::Requests).get("cpu").copied().unwrap_or_default()
}

fn is_limited(spec: &PodSpec, name: &str) -> bool {
    let set = |amounts: Amounts| amounts.get(name).is_some_and(|a| !a.is_zero());
    let whole = resources::amounts(spec.resources.as_ref().and_then(|r| r.limits.as_ref()));
    set(whole) || api::pod::containers(spec).all(|(_, c)| set(resources::container(c, Side::Limits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(resources: &[Value], expected: (i64, Option<i64>, Option<i64>)) {
        let containers: Vec<Value> =
            resources.iter().enumerate().map(|(i, r)| json!({"name": format!("c{i}"), "resources": r})).collect();
        let spec: PodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
        let limits = Limits::of_pod(&spec, values::PERIOD);
        assert_eq!((limits.shares, limits.quota.map(|(quota, _)| quota), limits.memory), expected, "{resources:?}");
    }

    #[test]
    fn a_pod_is_limited_where_all_of_its_containers_are() {
        let both = json!({"cpu": "500m", "memory": "1Mi"});
        let guaranteed = json!({"limits": both, "requests": both});
        check(&[json!({})], (2, None, None));
        check(&[json!({"requests": {"cpu": "1"}})], (1024, None, None));
        check(std::slice::from_ref(&guaranteed), (512, Some(50_000), Some(1 << 20)));
        check(&[guaranteed.clone(), guaranteed.clone()], (1024, Some(100_000), Some(2 << 20)));
        check(&[guaranteed.clone(), json!({})], (512, None, None));
        check(&[guaranteed, json!({"limits": {"memory": "1Mi"}})], (512, None, Some(2 << 20)));
    }

    #[test]
    fn what_grows_is_never_smaller_than_it_was() {
        let limits = |quota, memory| Limits { shares: 2, quota, memory, pids: None };
        let (small, large) = (limits(Some((1, 9)), Some(1)), limits(Some((2, 9)), Some(2)));
        assert_eq!((small.or_more(&large), large.or_more(&small)), (large.clone(), large.clone()));
        assert_eq!(large.or_more(&limits(None, None)), limits(None, None));
    }

    #[test]
    fn all_pods_together_get_what_the_node_has_for_them() {
        let node = Amounts::from([("cpu".to_owned(), Amount::units(2)), ("memory".to_owned(), Amount::units(1 << 30))]);
        let limits = Limits { shares: 2048, memory: Some(1 << 30), ..Limits::default() };
        assert_eq!(Limits::of_all_pods(&node, true), limits);
        assert_eq!(Limits::of_all_pods(&node, false), Limits { memory: None, ..limits });
    }
}
