//! What a Pod asks for: effective requests and limits, and its quality of service
//! (`k8s.io/component-helpers/resource`, `pkg/apis/core/v1/helper/qos`).

use crate::pod::{ContainerKind, containers};
pub use crate::quantity::Amount;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Amount>;

/// Requests or limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What must be there.
    Requests,
    /// What may be used at most.
    Limits,
}

fn list(resources: Option<&ResourceRequirements>, side: Side) -> Amounts {
    let map = resources.and_then(|r| match side {
        Side::Requests => r.requests.as_ref(),
        Side::Limits => r.limits.as_ref(),
    });
    amounts(map)
}

/// Reads a resource list; entries that are no quantities (validation refuses them) count as nothing.
#[must_use]
pub fn amounts(map: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    map.into_iter().flatten().filter_map(|(k, q)| Some((k.clone(), Amount::try_from(q).ok()?))).collect()
}

/// Adds `b` to `a`.
pub fn add(a: &mut Amounts, b: &Amounts) {
    for (k, v) in b {
        let sum = a.get(k).copied().unwrap_or_default().plus(*v);
        a.insert(k.clone(), sum);
    }
}

/// An amount in the form that upstream shows it in: memory with binary suffixes.
#[must_use]
pub fn shown(name: &str, amount: Amount) -> Quantity {
    if name == "cpu" { amount.to_quantity() } else { amount.to_binary_quantity() }
}

/// Makes each amount of `a` at least that of `b`.
pub fn raise(a: &mut Amounts, b: &Amounts) {
    for (k, v) in b {
        let max = a.get(k).copied().map_or(*v, |x| x.max(*v));
        a.insert(k.clone(), max);
    }
}

/// What a container asks for.
#[must_use]
pub fn container(c: &Container, side: Side) -> Amounts {
    list(c.resources.as_ref(), side)
}

/// What the containers of a Pod ask for together: the sum of its app containers and sidecars, or the largest step of its
/// initialization if that is more (`AggregateContainerRequests`).
#[must_use]
pub fn aggregate(spec: &PodSpec, side: Side) -> Amounts {
    let (mut total, mut sidecars, mut init_peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for (kind, c) in containers(spec) {
        let own = container(c, side);
        match kind {
            ContainerKind::App | ContainerKind::Ephemeral => add(&mut total, &own),
            ContainerKind::Sidecar => {
                add(&mut total, &own);
                add(&mut sidecars, &own);
                raise(&mut init_peak, &sidecars);
            }
            ContainerKind::Init => {
                let mut step = own;
                add(&mut step, &sidecars);
                raise(&mut init_peak, &step);
            }
        }
    }
    raise(&mut total, &init_peak);
    total
}

/// Whether the resource is one that the cluster's administrator brings in (`IsExtendedResourceName`): its name is of another
/// domain than Kubernetes' own.
#[must_use]
pub fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

/// Whether a Pod may ask for it as a whole (KEP-2837).
#[must_use]
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// What a Pod asks for as a whole: what its containers ask for together; pod-level resources win where they are set;
/// overhead comes on top.
#[must_use]
pub fn pod(spec: &PodSpec, side: Side) -> Amounts {
    let mut total = aggregate(spec, side);
    for (k, v) in list(spec.resources.as_ref(), side) {
        total.insert(k, v);
    }
    let overhead = amounts(spec.overhead.as_ref());
    match side {
        Side::Requests => add(&mut total, &overhead),
        // Overhead raises a limit that is there; it does not make one.
        Side::Limits => {
            for (k, v) in overhead {
                if let Some(limit) = total.get_mut(&k) {
                    *limit = limit.plus(v);
                }
            }
        }
    }
    total
}

/// What a Pod asks for of its node while a resize is under way: of each container the most of what it asks for, what is
/// allocated to it and what it has. What the node will never give does not count (upstream's `UseStatusResources`).
#[must_use]
pub fn pod_in_use(pod: &Pod) -> Amounts {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else {
        return pod.spec.as_ref().map(|s| self::pod(s, Side::Requests)).unwrap_or_default();
    };
    let conditions = status.conditions.iter().flatten();
    let hopeless =
        conditions.filter(|c| c.type_ == "PodResizePending").any(|c| c.reason.as_deref() == Some("Infeasible"));
    let mut spec = spec.clone();
    let statuses: Vec<_> = status.init_container_statuses.iter().chain(&status.container_statuses).flatten().collect();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let Some(known) = statuses.iter().find(|s| s.name == container.name) else { continue };
        let Some(had) = &known.resources else { continue };
        let mut most = if hopeless { Amounts::new() } else { self::container(container, Side::Requests) };
        raise(&mut most, &amounts(had.requests.as_ref()));
        raise(&mut most, &amounts(known.allocated_resources.as_ref()));
        let requests = most.into_iter().map(|(name, amount)| (name.clone(), shown(&name, amount))).collect();
        container.resources.get_or_insert_default().requests = Some(requests);
    }
    self::pod(&spec, Side::Requests)
}

/// Quality of service (`status.qosClass`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    /// Every container has limits for CPU and memory, equal to its requests.
    Guaranteed,
    /// Something is asked for.
    Burstable,
    /// Nothing is asked for.
    BestEffort,
}

impl QosClass {
    /// The word in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The Pod's class, from its spec. Only CPU and memory count, and zero is not asked for.
#[must_use]
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let relevant = |a: Amounts| -> Amounts {
        a.into_iter().filter(|(k, v)| matches!(k.as_str(), "cpu" | "memory") && *v > Amount::ZERO).collect()
    };
    let pairs: Vec<(Amounts, Amounts)> =
        if spec.resources.as_ref().is_some_and(|r| r.requests.is_some() || r.limits.is_some()) {
            let r = spec.resources.as_ref();
            vec![(relevant(list(r, Side::Requests)), relevant(list(r, Side::Limits)))]
        } else {
            containers(spec)
                .map(|(_, c)| (relevant(container(c, Side::Requests)), relevant(container(c, Side::Limits))))
                .collect()
        };
    if pairs.iter().all(|(r, l)| r.is_empty() && l.is_empty()) {
        return QosClass::BestEffort;
    }
    // Defaulting gives a limit's value to a missing request, but this also reads specs that were not defaulted.
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
        assert_eq!(pod(&spec, Side::Requests)["cpu"].milli(), expected_milli);
    }

    #[test]
    fn effective_requests_follow_the_sidecar_rule() {
        let cpu = |m: &'static str, policy| c(&[("cpu", m)], &[], policy);
        check_cpu(vec![], vec![cpu("100m", None), cpu("200m", None)], 300);
        check_cpu(vec![cpu("500m", None)], vec![cpu("100m", None)], 500);
        check_cpu(vec![cpu("200m", Some("Always"))], vec![cpu("100m", None)], 300);
        check_cpu(vec![cpu("200m", Some("Always")), cpu("500m", None)], vec![cpu("100m", None)], 700);
        check_cpu(vec![cpu("500m", None), cpu("200m", Some("Always"))], vec![cpu("100m", None)], 500);
    }

    #[test]
    fn a_resize_counts_with_the_most_that_it_may_take() {
        let amounts = |cpu: &str| serde_json::json!({"cpu": cpu});
        let pod = |asked: &str, allocated: &str, has: &str, reason: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "spec": {"containers": [{"name": "c", "resources": {"requests": amounts(asked)}}], "overhead": amounts("5m")},
                "status": {
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                    "containerStatuses": [{"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
                        "allocatedResources": amounts(allocated), "resources": {"requests": amounts(has)}}],
                },
            }))
            .unwrap()
        };
        for (asked, allocated, has, reason, expected) in [
            ("300m", "200m", "100m", "Deferred", 305),
            ("100m", "200m", "100m", "Deferred", 205),
            ("100m", "200m", "300m", "Deferred", 305),
            ("900m", "200m", "100m", "Infeasible", 205),
        ] {
            assert_eq!(pod_in_use(&pod(asked, allocated, has, reason))["cpu"].milli(), expected, "{asked} {reason}");
        }
    }

    #[track_caller]
    fn check_qos(containers: Vec<Container>, expected: QosClass) {
        assert_eq!(qos_class(&PodSpec { containers, ..Default::default() }), expected);
    }

    #[test]
    fn quality_of_service_follows_cpu_and_memory() {
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
