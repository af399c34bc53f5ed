//! Kubelet admission, with upstream's order of checks and messages (`pkg/kubelet/lifecycle/predicate.go`). A Pod is
//! admitted once; an admitted Pod is never re-admitted.

use crate::{
    Admission, apparmor,
    preemption::{self, InsufficientResource, Preemption},
    shutdown, sysctls,
};
use api::{
    affinity,
    host_port::host_ports,
    pod::is_critical,
    quantity::Amount,
    resources::{self, Amounts, QosClass, ResourceField},
    static_pod::is_static,
    taint,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint};
use std::sync::Arc;

/// The operating system of this node.
const OS: &str = "linux";
const OS_LABEL: &str = "kubernetes.io/os";

/// Resource pressure on the node, reported as a condition of its status (`pkg/kubelet/eviction`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodePressure {
    /// Disk space or inodes.
    Disk,
    /// Memory.
    Memory,
    /// Process ids.
    Pid,
}

impl NodePressure {
    /// Returns the type of the node condition.
    #[must_use]
    pub fn condition(self) -> &'static str {
        match self {
            Self::Disk => "DiskPressure",
            Self::Memory => "MemoryPressure",
            Self::Pid => "PIDPressure",
        }
    }
}

/// Node state that admission depends on.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionNodeInfo<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The node's object; `None` if the API is unavailable: then predicates that need it are skipped.
    pub node: Option<&'a Node>,
    /// Allocatable resources (`status.allocatable`), including `pods`.
    pub allocatable: &'a Amounts,
    /// The other admitted, non-terminal Pods.
    pub others: &'a [Arc<Pod>],
    /// The pressure conditions that are true.
    pub pressures: &'a [NodePressure],
    /// Whether it is shutting down.
    pub shutting_down: bool,
    /// Allowed unsafe sysctls (`allowedUnsafeSysctls`).
    pub unsafe_sysctls: &'a [String],
    /// Whether AppArmor is enabled.
    pub apparmor: bool,
}

/// Result of [`admit`].
#[derive(Debug, Clone, PartialEq)]
pub enum AdmissionDecision {
    /// Admitted or rejected.
    Decided(Admission),
    /// Admitted once the victims have terminated.
    Preempts(Preemption),
}

impl crate::Pod {
    /// Returns whether admission is still undecided. Until then no status is reported, because a rejected Pod is Failed
    /// from its first status on (upstream's `rejectPod`).
    #[must_use]
    pub fn awaits_admission(&self, now: Timestamp) -> bool {
        self.admission.is_none() && !self.is_ending(now)
    }
}

/// Decides whether the node admits a Pod (`canAdmitPod`, with all of upstream's `PodAdmitHandler`s). A critical Pod
/// preempts others if only resources are missing.
#[must_use]
pub fn admit(pod: &Pod, view: &AdmissionNodeInfo<'_>) -> AdmissionDecision {
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let insufficient = insufficient_resources(spec, view);
    let critical = is_critical(pod);
    let rejection_reason = check_pressure(pod, spec, view.pressures)
        .or_else(|| Some(("SysctlForbidden".to_owned(), sysctls::forbidden(spec, view.unsafe_sysctls)?)))
        .or_else(|| check_os(pod, spec))
        .or_else(|| check_supplemental_groups_policy(spec, view.node))
        .or_else(|| insufficient.first().filter(|_| !critical).map(out_of_resource))
        .or_else(|| check_predicates(pod, spec, view))
        .or_else(|| apparmor::rejection(spec, view.apparmor))
        .or_else(|| rejection(shutdown::REJECTION.0, shutdown::REJECTION.1).filter(|_| view.shutting_down));
    match rejection_reason {
        Some(rejection_reason) => AdmissionDecision::Decided(rejected(rejection_reason)),
        None if insufficient.is_empty() => AdmissionDecision::Decided(Admission::Admitted),
        None => preemption::select_victims(pod, &insufficient, view.others).map_or_else(
            |text| {
                let message = format!(
                    "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: {text}"
                );
                AdmissionDecision::Decided(rejected(("UnexpectedAdmissionError".to_owned(), message)))
            },
            AdmissionDecision::Preempts,
        ),
    }
}

fn rejected((reason, message): Rejection) -> Admission {
    Admission::Rejected { reason, message }
}

/// Reason and message.
type Rejection = (String, String);

fn rejection(reason: &str, message: &str) -> Option<Rejection> {
    Some((reason.to_owned(), message.to_owned()))
}

/// Rejects BestEffort Pods under memory pressure, and all Pods under any other pressure.
fn check_pressure(pod: &Pod, spec: &PodSpec, pressures: &[NodePressure]) -> Option<Rejection> {
    if pressures.is_empty() || is_critical(pod) {
        return None;
    }
    if pressures == [NodePressure::Memory] {
        let taint = Taint {
            key: "node.kubernetes.io/memory-pressure".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let tolerated = spec.tolerations.iter().flatten().any(|t| taint::tolerates(t, &taint));
        if tolerated || resources::qos_class(spec) != QosClass::BestEffort {
            return None;
        }
    }
    let conditions: Vec<&str> = pressures.iter().map(|p| p.condition()).collect();
    rejection("Evicted", &format!("The node had condition: [{}]. ", conditions.join(" ")))
}

fn check_os(pod: &Pod, spec: &PodSpec) -> Option<Rejection> {
    let label = pod.metadata.labels.as_ref().and_then(|l| l.get(OS_LABEL));
    if label.is_some_and(|os| os != OS) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return rejection("PodOSSelectorNodeLabelDoesNotMatch", message);
    }
    if spec.os.as_ref().is_some_and(|os| os.name != OS) {
        return rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    None
}

/// Rejects `Strict` unless the runtime supports it (KEP-3619).
fn check_supplemental_groups_policy(spec: &PodSpec, node: Option<&Node>) -> Option<Rejection> {
    let policy = spec.security_context.as_ref().and_then(|s| s.supplemental_groups_policy.as_deref());
    let features = node.and_then(|n| n.status.as_ref()).and_then(|s| s.features.as_ref());
    let supported = features.and_then(|f| f.supplemental_groups_policy) == Some(true);
    if policy == Some("Strict") && !supported {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return rejection("SupplementalGroupsPolicyNotSupported", message);
    }
    None
}

fn out_of_resource(insufficient_resource: &InsufficientResource) -> Rejection {
    let InsufficientResource { resource, requested, used, capacity } = insufficient_resource;
    let text = "Node didn't have enough resource";
    let message = format!("{text}: {resource}, requested: {requested}, used: {used}, capacity: {capacity}");
    (format!("OutOf{resource}"), message)
}

/// Returns the insufficient resources of the node.
fn insufficient_resources(spec: &PodSpec, view: &AdmissionNodeInfo<'_>) -> Vec<InsufficientResource> {
    let insufficient_resource = |name: &str, requested: i64, used: i64, capacity: i64| InsufficientResource {
        resource: name.to_owned(),
        requested,
        used,
        capacity,
    };
    let mut insufficient = Vec::new();
    let max_pods = view.allocatable.get("pods").map_or(0, |a| a.value());
    let taken = i64::try_from(view.others.len()).unwrap_or(i64::MAX);
    if taken >= max_pods {
        insufficient.push(insufficient_resource("pods", 1, taken, max_pods));
    }
    let mut used = Amounts::new();
    for spec in view.others.iter().filter_map(|p| p.spec.as_ref()) {
        resources::add_resource_list(&mut used, &resources::pod_resources(spec, ResourceField::Requests));
    }
    let status = view.node.and_then(|n| n.status.as_ref());
    let extended = resources::amounts(status.and_then(|s| s.allocatable.as_ref()));
    let requests = resources::pod_resources(spec, ResourceField::Requests);
    // Upstream checks these three first, and all others in no order.
    let first = ["cpu", "memory", "ephemeral-storage"];
    let rest = requests.keys().map(String::as_str).filter(|name| !first.contains(name));
    for name in first.into_iter().chain(rest) {
        let capacity = view.allocatable.get(name).or_else(|| extended.get(name)).copied();
        let Some(requested) = requests.get(name).copied().filter(|a| *a > Amount::ZERO) else { continue };
        // Cluster-level resources are managed elsewhere, for example by a scheduler extender.
        if capacity.is_none() && resources::is_extended(name) {
            continue;
        }
        let (capacity, used) = (capacity.unwrap_or_default(), used.get(name).copied().unwrap_or_default());
        if used.saturating_add(requested) > capacity {
            // Upstream prints millicores and bytes.
            let units = |a: Amount| if name == "cpu" { a.milli() } else { a.value() };
            insufficient.push(insufficient_resource(name, units(requested), units(used), units(capacity)));
        }
    }
    insufficient
}

/// Checks node affinity, node name, host ports and NoExecute taints.
fn check_predicates(pod: &Pod, spec: &PodSpec, view: &AdmissionNodeInfo<'_>) -> Option<Rejection> {
    let failed = |name: &str, reason: &str| rejection(name, &format!("Predicate {name} failed: {reason}"));
    if view.node.is_some_and(|node| !affinity::matches_node(spec, node)) {
        return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    if spec.node_name.as_deref().is_some_and(|name| !name.is_empty() && name != view.name) {
        return failed("NodeName", "node(s) didn't match the requested node name");
    }
    let ports = host_ports(spec);
    let used_ports = || view.others.iter().filter_map(|p| p.spec.as_ref()).flat_map(host_ports);
    if !ports.is_empty() && used_ports().any(|used| ports.iter().any(|port| port.conflicts(&used))) {
        return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    let taints = view.node.and_then(|n| n.spec.as_ref()).and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if !is_static(pod) && taint::find_untolerated_taint(taints, tolerations, &["NoExecute"]).is_some() {
        return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    None
}
