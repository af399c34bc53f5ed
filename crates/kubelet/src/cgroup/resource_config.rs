//! Resource configuration of cgroups (upstream's `ResourceConfigForPod`).

use super::cpu_conversion;
use api::{
    quantity::Amount,
    resources::{self, Amounts, QosClass, ResourceField},
};
use k8s_openapi::api::core::v1::PodSpec;

/// Resource configuration of a cgroup; `None` keeps the current value.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ResourceConfig {
    /// CPU shares (cgroup v1).
    pub(super) shares: i64,
    /// CFS quota and period in µs.
    pub(super) quota: Option<(i64, i64)>,
    /// Memory limit in bytes.
    pub(super) memory: Option<i64>,
    /// Maximum number of processes.
    pub(super) pids: Option<i64>,
}

impl ResourceConfig {
    pub(super) fn shares(shares: i64) -> Self {
        Self { shares, ..Self::default() }
    }

    /// Returns the configuration for all Pods together.
    pub(super) fn for_all_pods(allocatable: &Amounts, enforce: bool) -> Self {
        let amount = |name: &str| allocatable.get(name).copied().filter(|a| !a.is_zero());
        Self {
            shares: cpu_conversion::shares(amount("cpu").unwrap_or_default()),
            memory: amount("memory").filter(|_| enforce).map(Amount::value),
            ..Self::default()
        }
    }

    /// Returns the larger values of both; a value that is `None` in one of them stays `None`.
    pub(super) fn max_of(&self, other: &Self) -> Self {
        let larger = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.max(b));
        Self {
            shares: self.shares.max(other.shares),
            quota: self.quota.zip(other.quota).map(|(a, b)| a.max(b)),
            memory: larger(self.memory, other.memory),
            pids: larger(self.pids, other.pids),
        }
    }

    /// Returns the configuration for a Pod: the sum of its containers, with a limit only if every container has one.
    pub(super) fn for_pod(spec: &PodSpec, period: i64) -> Self {
        if resources::qos_class(spec) == QosClass::BestEffort {
            return Self::shares(cpu_conversion::MIN_SHARES);
        }
        let sum = resources::pod_resources(spec, ResourceField::Limits);
        let limit = |name: &str| sum.get(name).copied().filter(|_| is_limited(spec, name));
        Self {
            shares: cpu_conversion::shares(requested_cpu(spec)),
            quota: limit("cpu").map(|cpu| (cpu_conversion::quota(cpu, period), period)),
            memory: limit("memory").map(Amount::value),
            pids: None,
        }
    }
}

pub(super) fn requested_cpu(spec: &PodSpec) -> Amount {
    resources::pod_resources(spec, ResourceField::Requests).get("cpu").copied().unwrap_or_default()
}

fn is_limited(spec: &PodSpec, name: &str) -> bool {
    let is_set = |amounts: Amounts| amounts.get(name).is_some_and(|a| !a.is_zero());
    let pod_limits = resources::amounts(spec.resources.as_ref().and_then(|r| r.limits.as_ref()));
    is_set(pod_limits)
        || api::pod::containers(spec).all(|(_, c)| is_set(resources::container_resources(c, ResourceField::Limits)))
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
        let limits = ResourceConfig::for_pod(&spec, cpu_conversion::DEFAULT_PERIOD);
        assert_eq!((limits.shares, limits.quota.map(|(quota, _)| quota), limits.memory), expected, "{resources:?}");
    }

    #[test]
    fn pod_limit_needs_limits_of_all_containers() {
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
    fn maximum_of_two_configurations_keeps_the_larger_values() {
        let limits = |quota, memory| ResourceConfig { shares: 2, quota, memory, pids: None };
        let (small, large) = (limits(Some((1, 9)), Some(1)), limits(Some((2, 9)), Some(2)));
        assert_eq!((small.max_of(&large), large.max_of(&small)), (large.clone(), large.clone()));
        assert_eq!(large.max_of(&limits(None, None)), limits(None, None));
    }

    #[test]
    fn node_allocatable_limits_all_pods_together() {
        let node = Amounts::from([("cpu".to_owned(), Amount::units(2)), ("memory".to_owned(), Amount::units(1 << 30))]);
        let limits = ResourceConfig { shares: 2048, memory: Some(1 << 30), ..ResourceConfig::default() };
        assert_eq!(ResourceConfig::for_all_pods(&node, true), limits);
        assert_eq!(ResourceConfig::for_all_pods(&node, false), ResourceConfig { memory: None, ..limits });
    }
}
