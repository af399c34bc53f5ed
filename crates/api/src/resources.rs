//! Effective resource requests and limits of Pods, and their QoS class
//! (`k8s.io/component-helpers/resource`, `pkg/apis/core/v1/helper/qos`).

use crate::pod::{ContainerKind, containers};
pub use crate::quantity::Amount;
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use std::collections::BTreeMap;

/// Amounts by resource name (`ResourceList`).
pub type Amounts = BTreeMap<String, Amount>;

/// Selects requests or limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceField {
    /// Resource requests.
    Requests,
    /// Resource limits.
    Limits,
}

fn list(resources: Option<&ResourceRequirements>, side: ResourceField) -> Amounts {
    let map = resources.and_then(|r| match side {
        ResourceField::Requests => r.requests.as_ref(),
        ResourceField::Limits => r.limits.as_ref(),
    });
    amounts(map)
}

/// Parses a resource list; invalid quantities, which validation rejects, are skipped.
#[must_use]
pub fn amounts(map: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    map.into_iter().flatten().filter_map(|(k, q)| Some((k.clone(), Amount::try_from(q).ok()?))).collect()
}

/// Adds the amounts of `b` to `a` (`addResourceList`).
pub fn add_resource_list(a: &mut Amounts, b: &Amounts) {
    for (k, v) in b {
        let sum = a.get(k).copied().unwrap_or_default().saturating_add(*v);
        a.insert(k.clone(), sum);
    }
}

/// Formats an amount as upstream does: CPU in decimal, other resources with binary suffixes.
#[must_use]
pub fn format_amount(name: &str, amount: Amount) -> Quantity {
    if name == "cpu" { amount.to_quantity() } else { amount.to_binary_quantity() }
}

/// Raises each amount of `a` to at least that of `b` (`maxResourceList`).
pub fn max_resource_list(a: &mut Amounts, b: &Amounts) {
    for (k, v) in b {
        let max = a.get(k).copied().map_or(*v, |x| x.max(*v));
        a.insert(k.clone(), max);
    }
}

/// Returns the requests or limits of a container.
#[must_use]
pub fn container_resources(c: &Container, side: ResourceField) -> Amounts {
    list(c.resources.as_ref(), side)
}

/// Returns the requests or limits of all containers of a Pod: the sum of app containers and sidecars, or the peak during
/// initialization if that is more (`AggregateContainerRequests`).
#[must_use]
pub fn aggregate_container_resources(spec: &PodSpec, side: ResourceField) -> Amounts {
    let (mut total, mut sidecars, mut init_peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for (kind, c) in containers(spec) {
        let resources = container_resources(c, side);
        match kind {
            ContainerKind::App | ContainerKind::Ephemeral => add_resource_list(&mut total, &resources),
            ContainerKind::Sidecar => {
                add_resource_list(&mut total, &resources);
                add_resource_list(&mut sidecars, &resources);
                max_resource_list(&mut init_peak, &sidecars);
            }
            ContainerKind::Init => {
                let mut init_requests = resources;
                add_resource_list(&mut init_requests, &sidecars);
                max_resource_list(&mut init_peak, &init_requests);
            }
        }
    }
    max_resource_list(&mut total, &init_peak);
    total
}

/// Returns whether a resource is an extended resource: its domain is not `kubernetes.io` (`IsExtendedResourceName`).
#[must_use]
pub fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

/// Returns whether a resource may be set at Pod level (KEP-2837).
#[must_use]
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Returns the requests or limits of a Pod (`PodRequests`, `PodLimits`): the aggregate of its containers, overridden by
/// Pod-level resources, plus overhead.
#[must_use]
pub fn pod_resources(spec: &PodSpec, side: ResourceField) -> Amounts {
    let mut total = aggregate_container_resources(spec, side);
    for (k, v) in list(spec.resources.as_ref(), side) {
        total.insert(k, v);
    }
    let overhead = amounts(spec.overhead.as_ref());
    match side {
        ResourceField::Requests => add_resource_list(&mut total, &overhead),
        // Overhead is added to existing limits only.
        ResourceField::Limits => {
            for (k, v) in overhead {
                if let Some(limit) = total.get_mut(&k) {
                    *limit = limit.saturating_add(v);
                }
            }
        }
    }
    total
}

/// Returns the requests of a Pod during a resize: for each container, the maximum of desired, allocated and actual requests.
/// Desired requests of an infeasible resize do not count (`UseStatusResources`).
#[must_use]
pub fn pod_requests_during_resize(pod: &Pod) -> Amounts {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else {
        return pod.spec.as_ref().map(|s| self::pod_resources(s, ResourceField::Requests)).unwrap_or_default();
    };
    let conditions = status.conditions.iter().flatten();
    let is_infeasible =
        conditions.filter(|c| c.type_ == "PodResizePending").any(|c| c.reason.as_deref() == Some("Infeasible"));
    let mut spec = spec.clone();
    let statuses: Vec<_> = status.init_container_statuses.iter().chain(&status.container_statuses).flatten().collect();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let Some(status_of_container) = statuses.iter().find(|s| s.name == container.name) else { continue };
        let Some(actual) = &status_of_container.resources else { continue };
        let mut effective =
            if is_infeasible { Amounts::new() } else { self::container_resources(container, ResourceField::Requests) };
        max_resource_list(&mut effective, &amounts(actual.requests.as_ref()));
        max_resource_list(&mut effective, &amounts(status_of_container.allocated_resources.as_ref()));
        let requests =
            effective.into_iter().map(|(name, amount)| (name.clone(), format_amount(&name, amount))).collect();
        container.resources.get_or_insert_default().requests = Some(requests);
    }
    self::pod_resources(&spec, ResourceField::Requests)
}

/// Quality of service class of a Pod (`status.qosClass`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    /// All containers have limits for CPU and memory that equal their requests.
    Guaranteed,
    /// Some container has a request or limit.
    Burstable,
    /// No container has requests or limits.
    BestEffort,
}

impl QosClass {
    /// Returns the value in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// Computes the QoS class of a Pod (`ComputePodQOS`). Only CPU and memory count, and zero counts as unset.
#[must_use]
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let relevant = |a: Amounts| -> Amounts {
        a.into_iter().filter(|(k, v)| matches!(k.as_str(), "cpu" | "memory") && *v > Amount::ZERO).collect()
    };
    let pairs: Vec<(Amounts, Amounts)> =
        if spec.resources.as_ref().is_some_and(|r| r.requests.is_some() || r.limits.is_some()) {
            let r = spec.resources.as_ref();
            vec![(relevant(list(r, ResourceField::Requests)), relevant(list(r, ResourceField::Limits)))]
        } else {
            containers(spec)
                .map(|(_, c)| {
                    (
                        relevant(container_resources(c, ResourceField::Requests)),
                        relevant(container_resources(c, ResourceField::Limits)),
                    )
                })
                .collect()
        };
    if pairs.iter().all(|(r, l)| r.is_empty() && l.is_empty()) {
        return QosClass::BestEffort;
    }
    // Missing requests default to limits, which specs without defaulting do not have yet.
    let guaranteed = pairs.iter().all(|(r, l)| l.len() == 2 && r.iter().all(|(k, v)| l.get(k) == Some(v)));
    if guaranteed { QosClass::Guaranteed } else { QosClass::Burstable }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
        let map =
            |l: &[(&str, &str)]| Some(l.iter().map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned()))).collect());
        ResourceRequirements { requests: map(requests), limits: map(limits), claims: None }
    }

    fn c(requests: &[(&str, &str)], limits: &[(&str, &str)], policy: Option<&str>) -> Container {
        Container {
            resources: Some(resources(requests, limits)),
            restart_policy: policy.map(Into::into),
            ..Default::default()
        }
    }

    #[track_caller]
    fn check_cpu(init: Vec<Container>, app: Vec<Container>, expected_milli: i64) {
        let spec = PodSpec { init_containers: Some(init), containers: app, ..Default::default() };
        assert_eq!(pod_resources(&spec, ResourceField::Requests)["cpu"].milli(), expected_milli);
    }

    #[test]
    fn pod_requests_include_sidecars_and_init_peak() {
        let cpu = |m: &'static str, policy| c(&[("cpu", m)], &[], policy);
        check_cpu(vec![], vec![cpu("100m", None), cpu("200m", None)], 300);
        check_cpu(vec![cpu("500m", None)], vec![cpu("100m", None)], 500);
        check_cpu(vec![cpu("200m", Some("Always"))], vec![cpu("100m", None)], 300);
        check_cpu(vec![cpu("200m", Some("Always")), cpu("500m", None)], vec![cpu("100m", None)], 700);
        check_cpu(vec![cpu("500m", None), cpu("200m", Some("Always"))], vec![cpu("100m", None)], 500);
    }

    #[test]
    fn resize_counts_the_maximum_of_its_requests() {
        let amounts = |cpu: &str| serde_json::json!({"cpu": cpu});
        let pod = |desired: &str, allocated: &str, has: &str, reason: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "spec": {"containers": [{"name": "c", "resources": {"requests": amounts(desired)}}], "overhead": amounts("5m")},
                "status": {
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                    "containerStatuses": [{"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
                        "allocatedResources": amounts(allocated), "resources": {"requests": amounts(has)}}],
                },
            }))
            .unwrap()
        };
        for (desired, allocated, has, reason, expected) in [
            ("300m", "200m", "100m", "Deferred", 305),
            ("100m", "200m", "100m", "Deferred", 205),
            ("100m", "200m", "300m", "Deferred", 305),
            ("900m", "200m", "100m", "Infeasible", 205),
        ] {
            assert_eq!(
                pod_requests_during_resize(&pod(desired, allocated, has, reason))["cpu"].milli(),
                expected,
                "{desired} {reason}"
            );
        }
    }

    #[track_caller]
    fn check_qos(containers: Vec<Container>, expected: QosClass) {
        assert_eq!(qos_class(&PodSpec { containers, ..Default::default() }), expected);
    }

    #[test]
    fn qos_class_depends_on_cpu_and_memory() {
        let full = [("cpu", "1"), ("memory", "1Gi")];
        check_qos(vec![c(&[], &[], None)], QosClass::BestEffort);
        check_qos(vec![c(&full, &full, None)], QosClass::Guaranteed);
        check_qos(vec![c(&[], &full, None)], QosClass::Guaranteed);
        check_qos(vec![c(&[("cpu", "500m"), ("memory", "1Gi")], &full, None)], QosClass::Burstable);
        check_qos(vec![c(&full, &full, None), c(&[], &[], None)], QosClass::Burstable);
        check_qos(vec![c(&[("ephemeral-storage", "1Gi")], &[], None)], QosClass::BestEffort);
        check_qos(vec![c(&[("cpu", "0")], &[], None)], QosClass::BestEffort);
    }
}
