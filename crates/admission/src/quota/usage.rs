//! Usage of an object by quota resource name (upstream's evaluators, `pkg/quota/v1/evaluator/core`).

use api::{
    pod,
    resources::{self, Amount, Amounts, ResourceField},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{Container, PersistentVolumeClaim, Pod, Service},
    resource::v1::ResourceClaim,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const STORAGE_CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const RESOURCE_CLAIMS: Kind<'_> = Kind { group: "resource.k8s.io", resource: "resourceclaims" };
const DEVICE_CLASS_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";
/// Maximum number of devices of a ResourceClaim. A request with `allocationMode: All` counts as this many (`AllocationResultsMaxSize`).
const MAX_DEVICES: i64 = 32;

/// Group and plural name of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
}

impl<'a> Kind<'a> {
    /// Returns the resource whose objects a quota resource name limits.
    #[must_use]
    pub fn of(name: &'a str) -> Option<Self> {
        let core = |resource| Some(Self { group: "", resource });
        if let Some(counted) = name.strip_prefix("count/") {
            let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
            return Some(Self { group, resource });
        }
        if name.ends_with(DEVICE_CLASS_SUFFIX) {
            return Some(RESOURCE_CLAIMS);
        }
        match name.split_once(STORAGE_CLASS_SUFFIX).map_or(name, |(_, rest)| rest) {
            "persistentvolumeclaims" | "requests.storage" => core("persistentvolumeclaims"),
            "services" | "services.nodeports" | "services.loadbalancers" => core("services"),
            "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets" => core(name),
            _ if is_pod_resource(name) => core("pods"),
            _ => None,
        }
    }

    /// Returns the object count name, for example `count/deployments.apps`.
    fn count(self) -> String {
        let Self { group, resource } = self;
        if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") }
    }

    /// Whether the usage depends on the content of the objects, not only on their count.
    #[must_use]
    pub fn depends_on_content(self) -> bool {
        self.can_increase_on_update() || self == RESOURCE_CLAIMS
    }

    /// Whether an update may increase the usage.
    #[must_use]
    pub fn can_increase_on_update(self) -> bool {
        self.group.is_empty() && matches!(self.resource, "services" | "persistentvolumeclaims" | "pods")
    }
}

fn is_pod_resource(name: &str) -> bool {
    const PLAIN: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
    let rest = name.strip_prefix("requests.").or(name.strip_prefix("limits."));
    name == "pods"
        || PLAIN.contains(&rest.unwrap_or(name))
        || name.starts_with("hugepages-")
        || name.strip_prefix("requests.").is_some_and(|n| n.starts_with("hugepages-") || resources::is_extended(n))
}

/// Object with the fields that determine its usage.
#[derive(Debug)]
pub struct Object {
    group: String,
    resource: String,
    typed: TypedObject,
    /// Whether a Pod is terminated, or its grace period has expired.
    is_terminated: bool,
}

#[derive(Debug)]
pub(super) enum TypedObject {
    Pod(Box<Pod>),
    Service(Box<Service>),
    Claim(Box<PersistentVolumeClaim>),
    ResourceClaim(Box<ResourceClaim>),
    Other,
}

impl Object {
    /// Parses a stored object. An object that cannot be decoded counts as one object.
    #[must_use]
    pub fn new(kind: Kind<'_>, value: &Value, now: Timestamp) -> Self {
        let typed = match (kind.group, kind.resource) {
            ("", "pods") => decode::from_value(value).map(TypedObject::Pod),
            ("", "services") => decode::from_value(value).map(TypedObject::Service),
            ("", "persistentvolumeclaims") => decode::from_value(value).map(TypedObject::Claim),
            _ if kind == RESOURCE_CLAIMS => decode::from_value(value).map(TypedObject::ResourceClaim),
            _ => Ok(TypedObject::Other),
        };
        let typed = typed.unwrap_or(TypedObject::Other);
        let is_terminated = matches!(&typed, TypedObject::Pod(pod) if is_terminated(pod, now));
        Self { group: kind.group.to_owned(), resource: kind.resource.to_owned(), typed, is_terminated }
    }

    /// Returns the resource.
    #[must_use]
    pub fn kind(&self) -> Kind<'_> {
        Kind { group: &self.group, resource: &self.resource }
    }

    pub(super) fn typed(&self) -> &TypedObject {
        &self.typed
    }

    fn pod(&self) -> Option<&Pod> {
        if let TypedObject::Pod(pod) = &self.typed { Some(pod) } else { None }
    }

    /// Returns the usage.
    pub(super) fn usage(&self) -> Amounts {
        let one = Amount::units(1);
        let mut usage = Amounts::from([(self.kind().count(), one)]);
        match &self.typed {
            TypedObject::Pod(_) if self.is_terminated => {}
            TypedObject::Pod(pod) => usage.extend(pod_usage(pod)),
            TypedObject::Service(service) => usage.extend(service_usage(service)),
            TypedObject::Claim(claim) => usage.extend(claim_usage(claim)),
            TypedObject::ResourceClaim(claim) => usage.extend(resource_claim_usage(claim)),
            TypedObject::Other => {
                usage.insert(self.resource.clone(), one);
            }
        }
        usage
    }

    /// Returns the limited CPU and memory resources that containers do not set, unless the Pod has pod-level resources
    /// (upstream comments this requirement as a mistake).
    pub(super) fn missing_resources<'a>(&'a self, limited: &[&'a str]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        let Some(spec) = self.pod().and_then(|pod| pod.spec.as_ref()) else { return BTreeMap::new() };
        let mut pod_level = spec.resources.iter().flat_map(|r| r.requests.iter().chain(&r.limits)).flatten();
        if pod_level.any(|(name, _)| resources::is_pod_level(name)) {
            return BTreeMap::new();
        }
        let is_set = |c: &Container, name: &str| {
            let (side, resource) = match name.split_once('.') {
                Some(("limits", resource)) => (ResourceField::Limits, resource),
                Some((_, resource)) => (ResourceField::Requests, resource),
                None => (ResourceField::Requests, name),
            };
            resources::container_resources(c, side).contains_key(resource)
        };
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let required = limited.iter().filter(|name| {
            matches!(**name, "cpu" | "memory" | "requests.cpu" | "requests.memory" | "limits.cpu" | "limits.memory")
        });
        for name in required {
            let unset =
                spec.containers.iter().chain(spec.init_containers.iter().flatten()).filter(|c| !is_set(c, name));
            for container in unset {
                missing.entry(name).or_default().insert(&container.name);
            }
        }
        missing
    }
}

/// Whether a Pod does not count: it is terminated, or its grace period has expired, because its node may be lost
/// (`QuotaV1Pod`).
fn is_terminated(pod: &Pod, now: Timestamp) -> bool {
    let meta = &pod.metadata;
    let late =
        meta.deletion_timestamp.as_ref().zip(meta.deletion_grace_period_seconds).is_some_and(|(at, grace)| {
            at.0.saturating_add(SignedDuration::from_secs(grace)).is_ok_and(|end| now > end)
        });
    late || pod::is_terminal(pod)
}

fn pod_usage(pod: &Pod) -> Amounts {
    let mut usage = Amounts::from([("pods".to_owned(), Amount::units(1))]);
    for (name, amount) in resources::pod_requests_during_resize(pod) {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            usage.insert(name.clone(), amount);
        }
        usage.insert(format!("requests.{name}"), amount);
    }
    let limits =
        pod.spec.as_ref().map(|spec| resources::pod_resources(spec, ResourceField::Limits)).unwrap_or_default();
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount);
        }
    }
    usage
}

fn service_usage(service: &Service) -> Amounts {
    let mut usage = Amounts::from([("services".to_owned(), Amount::units(1))]);
    let Some(spec) = &service.spec else { return usage };
    let ports = || spec.ports.iter().flatten();
    let number = |n: usize| Amount::units(i64::try_from(n).unwrap_or(i64::MAX));
    match spec.type_.as_deref() {
        Some("NodePort") => drop(usage.insert("services.nodeports".to_owned(), number(ports().count()))),
        Some("LoadBalancer") => {
            usage.insert("services.loadbalancers".to_owned(), Amount::units(1));
            let all = spec.allocate_load_balancer_node_ports != Some(false);
            let count = ports().filter(|p| all || p.node_port.is_some_and(|port| port != 0)).count();
            usage.insert("services.nodeports".to_owned(), number(count));
        }
        _ => {}
    }
    usage
}

fn claim_usage(claim: &PersistentVolumeClaim) -> Amounts {
    let mut usage = Amounts::from([("persistentvolumeclaims".to_owned(), Amount::units(1))]);
    let spec = claim.spec.as_ref();
    let requests = resources::amounts(spec.and_then(|s| s.resources.as_ref()?.requests.as_ref()));
    // The allocated storage counts even if the request was reduced.
    let allocated = resources::amounts(claim.status.as_ref().and_then(|s| s.allocated_resources.as_ref()));
    if let Some(storage) = requests.get("storage").copied() {
        usage.insert("requests.storage".to_owned(), storage.max(allocated.get("storage").copied().unwrap_or_default()));
    }
    let class = spec.and_then(|s| s.storage_class_name.as_deref()).filter(|class| !class.is_empty());
    if let Some(class) = class {
        let of_class: Vec<_> =
            usage.iter().map(|(name, amount)| (format!("{class}{STORAGE_CLASS_SUFFIX}{name}"), *amount)).collect();
        usage.extend(of_class);
    }
    usage
}

/// Returns the devices per DeviceClass. Of prioritized alternatives, each class counts with its maximum
/// (`pkg/quota/v1/evaluator/core/resource_claims.go`).
fn resource_claim_usage(claim: &ResourceClaim) -> Amounts {
    let count = |mode: Option<&str>, count: Option<i64>| match mode {
        Some("All") => MAX_DEVICES,
        Some("ExactCount") | None => count.unwrap_or(1),
        Some(_) => 0,
    };
    let mut usage = Amounts::new();
    for request in claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
        let exact =
            request.exactly.iter().map(|r| (&r.device_class_name, count(r.allocation_mode.as_deref(), r.count)));
        let choices = request.first_available.iter().flatten();
        let any = choices.map(|r| (&r.device_class_name, count(r.allocation_mode.as_deref(), r.count)));
        let mut maximum = Amounts::new();
        for (class, count) in exact.chain(any) {
            resources::max_resource_list(
                &mut maximum,
                &Amounts::from([(format!("{class}{DEVICE_CLASS_SUFFIX}"), Amount::units(count))]),
            );
        }
        resources::add_resource_list(&mut usage, &maximum);
    }
    usage
}
