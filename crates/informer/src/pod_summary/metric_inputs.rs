//! The part of a Pod that the autoscaler uses: readiness times and resource requests.

use api::{
    pod::{ContainerKind, containers},
    resources::{Amounts, ResourceField, container_resources, is_pod_level, pod_resources},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodSpec, PodStatus};

/// Values in thousandths by resource.
type MilliValues = Box<[(Box<str>, i64)]>;

/// A Pod does not request the resource, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingRequestError {
    /// No request of the whole Pod.
    #[error("missing pod-level request for {resource} in Pod {pod}")]
    PodLevel {
        /// The resource.
        resource: String,
        /// The Pod's name.
        pod: String,
    },
    /// No request of a container.
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    Container {
        /// The resource.
        resource: String,
        /// The container's name.
        container: String,
        /// The Pod's name.
        pod: String,
    },
    /// No such container.
    #[error("container {container} not found in Pod {pod}")]
    ContainerNotFound {
        /// The container's name.
        container: String,
        /// The Pod's name.
        pod: String,
    },
}

/// The part of a Pod that the autoscaler uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodMetricInputs {
    /// Start time of the Pod.
    pub started: Option<Timestamp>,
    /// The condition `Ready`.
    pub readiness: Option<Readiness>,
    /// Requests of containers: app containers, then sidecars.
    pub containers: Box<[(Box<str>, MilliValues)]>,
    /// Pod-level requests (KEP-2837).
    pub whole: Option<MilliValues>,
}

/// The condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// Whether its status is `False`.
    pub is_false: bool,
    /// Its transition time.
    pub since: Timestamp,
}

impl PodMetricInputs {
    /// Returns the inputs of a Pod.
    #[must_use]
    pub fn of(spec: &PodSpec, status: &PodStatus) -> Self {
        let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready");
        let requires = |container_kind: ContainerKind| {
            let some = containers(spec).filter(move |(kind, _)| *kind == container_kind).map(|(_, c)| c);
            some.map(|c| (c.name.as_str().into(), milli_values(container_resources(c, ResourceField::Requests))))
        };
        let resources = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
        let says_itself = resources.is_some_and(|requests| requests.keys().any(|name| is_pod_level(name)));
        Self {
            started: status.start_time.as_ref().map(|time| time.0),
            readiness: ready.map(|c| Readiness {
                is_false: c.status == "False",
                since: c.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0),
            }),
            containers: requires(ContainerKind::App).chain(requires(ContainerKind::Sidecar)).collect(),
            whole: says_itself.then(|| milli_values(pod_resources(spec, ResourceField::Requests))),
        }
    }

    /// Returns the request of a resource in thousandths, of the Pod or one container (`calculateRequests`).
    ///
    /// # Errors
    /// If the Pod or the container does not request the resource.
    pub fn request(&self, pod: &str, of_container: Option<&str>, resource: &str) -> Result<i64, MissingRequestError> {
        let pod = || pod.to_owned();
        if let (Some(whole), None) = (&self.whole, of_container) {
            let found = find(whole, resource);
            return found.ok_or_else(|| MissingRequestError::PodLevel { resource: resource.to_owned(), pod: pod() });
        }
        let mut total = 0_i64;
        for (name, requested) in &self.containers {
            if of_container.is_some_and(|container_name| container_name != &**name) {
                continue;
            }
            let found = find(requested, resource);
            let found = found.ok_or_else(|| MissingRequestError::Container {
                resource: resource.to_owned(),
                container: name.to_string(),
                pod: pod(),
            });
            total = total.saturating_add(found?);
            if of_container.is_some() {
                return Ok(total);
            }
        }
        of_container.map_or(Ok(total), |container_name| {
            Err(MissingRequestError::ContainerNotFound { container: container_name.to_owned(), pod: pod() })
        })
    }
}

fn find(requested: &MilliValues, resource: &str) -> Option<i64> {
    requested.iter().find(|(name, _)| &**name == resource).map(|(_, amount)| *amount)
}

fn milli_values(amounts: Amounts) -> MilliValues {
    amounts.into_iter().map(|(name, amount)| (name.into(), amount.milli())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn requires(cpu: &str) -> Value {
        json!({"requests": {"cpu": cpu}})
    }

    #[track_caller]
    fn check(spec: Value, of_container: Option<&str>, expected: Result<i64, &str>) {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let measured = PodMetricInputs::of(&spec, &PodStatus::default());
        let got = measured.request("p", of_container, "cpu").map_err(|error| error.to_string());
        assert_eq!(got, expected.map_err(str::to_owned));
    }

    #[test]
    fn pod_request_sums_containers_and_sidecars() {
        let spec = json!({"containers": [{"name": "a", "resources": requires("1")}, {"name": "b", "resources": requires("250m")}],
            "initContainers": [{"name": "first", "resources": requires("9")},
                {"name": "side", "restartPolicy": "Always", "resources": requires("100m")}]});
        check(spec.clone(), None, Ok(1350));
        check(spec.clone(), Some("b"), Ok(250));
        check(spec.clone(), Some("side"), Ok(100));
        check(spec.clone(), Some("first"), Err("container first not found in Pod p"));
        check(spec, Some("z"), Err("container z not found in Pod p"));
    }

    #[test]
    fn missing_container_request_is_an_error() {
        let spec = json!({"containers": [{"name": "a", "resources": requires("1")}, {"name": "b"}]});
        check(spec.clone(), None, Err("missing request for cpu in container b of Pod p"));
        check(spec, Some("a"), Ok(1000));
    }

    #[test]
    fn pod_level_request_wins_unless_a_container_is_named() {
        let containers = json!([{"name": "a", "resources": requires("1")}]);
        check(json!({"resources": requires("3"), "containers": containers}), None, Ok(3000));
        check(json!({"resources": requires("3"), "containers": containers}), Some("a"), Ok(1000));
        let memory = json!({"requests": {"memory": "1Gi"}});
        check(json!({"resources": memory, "containers": containers}), None, Ok(1000));
        let missing = "missing pod-level request for cpu in Pod p";
        check(json!({"resources": memory, "containers": [{"name": "a"}]}), None, Err(missing));
    }
}
