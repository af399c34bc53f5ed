//! OOM score adjustment of containers (`pkg/kubelet/qos/policy.go`).

use api::{
    pod::containers,
    quantity::Amount,
    resources::{QosClass, ResourceField, aggregate_container_resources, amounts, container_resources, qos_class},
};
use k8s_openapi::api::core::v1::{Container as Spec, PodSpec};

/// Score of Guaranteed and node-critical Pods: killed last.
const GUARANTEED_SCORE: i64 = -997;
/// Score of BestEffort Pods: killed first.
const BEST_EFFORT_SCORE: i64 = 1_000;
const NODE_CRITICAL: &str = "system-node-critical";

/// Returns the `oom_score_adj` of a container by its Pod's QoS class; a Burstable container that requests more memory is
/// killed later. `capacity` is the node's memory.
pub(super) fn oom_score_adjust(pod: &PodSpec, spec: &Spec, capacity: Amount) -> i64 {
    if pod.priority_class_name.as_deref() == Some(NODE_CRITICAL) {
        return GUARANTEED_SCORE;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => GUARANTEED_SCORE,
        QosClass::BestEffort => BEST_EFFORT_SCORE,
        QosClass::Burstable => {
            let share = unrequested_share(pod);
            let score = |requested: i64| {
                BEST_EFFORT_SCORE - (requested + share).saturating_mul(BEST_EFFORT_SCORE) / capacity.value().max(1)
            };
            let container_score = score(requested(spec));
            // A sidecar is killed no earlier than the regular containers.
            let is_sidecar = pod.init_containers.iter().flatten().any(|c| c.name == spec.name)
                && spec.restart_policy.as_deref() == Some("Always");
            let regular_minimum = pod.containers.iter().map(requested).min().filter(|_| is_sidecar).map(score);
            container_score
                .min(regular_minimum.unwrap_or(container_score))
                .clamp(BEST_EFFORT_SCORE + GUARANTEED_SCORE, BEST_EFFORT_SCORE - 1)
        }
    }
}

fn requested(spec: &Spec) -> i64 {
    container_resources(spec, ResourceField::Requests).get("memory").map_or(0, |memory| memory.value())
}

/// Returns each container's share of the memory that the Pod requests beyond its containers' requests (KEP-2837).
fn unrequested_share(pod: &PodSpec) -> i64 {
    let pod_request = amounts(pod.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let Some(pod_request) = pod_request.get("memory").filter(|memory| !memory.is_zero()) else { return 0 };
    let container_requests =
        aggregate_container_resources(pod, ResourceField::Requests).get("memory").copied().unwrap_or_default();
    let count = i64::try_from(containers(pod).count()).unwrap_or(i64::MAX).max(1);
    pod_request.saturating_sub(container_requests).value() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Checks the scores of all containers on a node with 1,000 bytes of memory.
    #[track_caller]
    fn check(pod: Value, expected: &[i64]) {
        let spec: PodSpec = serde_json::from_value(pod.clone()).unwrap();
        let scores: Vec<i64> =
            containers(&spec).map(|(_, c)| oom_score_adjust(&spec, c, Amount::units(1_000))).collect();
        assert_eq!(scores, expected, "{pod}");
    }

    fn requests_memory(name: &str, memory: i64) -> Value {
        json!({"name": name, "resources": {"requests": {"memory": memory.to_string()}}})
    }

    #[test]
    fn higher_memory_request_lowers_the_oom_score() {
        for (requested, expected) in [(1, 999), (500, 500), (999, 3), (1000, 3)] {
            check(json!({"containers": [requests_memory("c", requested)]}), &[expected]);
        }
        check(json!({"containers": [{"name": "c"}]}), &[1_000]);
        check(json!({"containers": [{"name": "c"}, requests_memory("d", 100)]}), &[999, 900]);
        let limits = json!({"cpu": "1", "memory": "100"});
        check(json!({"containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}]}), &[-997]);
    }

    #[test]
    fn node_critical_pod_has_the_lowest_oom_score() {
        check(
            json!({"priorityClassName": NODE_CRITICAL, "containers": [{"name": "c"}, requests_memory("d", 100)]}),
            &[-997; 2],
        );
    }

    #[test]
    fn sidecar_oom_score_is_not_above_its_containers() {
        let sidecar = json!({"name": "s", "restartPolicy": "Always"});
        check(
            json!({"initContainers": [sidecar, {"name": "i"}], "containers": [requests_memory("c", 300), requests_memory("d", 500)]}),
            &[700, 999, 700, 500],
        );
    }

    #[test]
    fn pod_level_memory_request_is_shared_by_containers() {
        let pod = |pod_request: i64| json!({"resources": {"requests": {"memory": pod_request.to_string()}}, "containers": [requests_memory("c", 100), {"name": "d"}]});
        check(pod(500), &[700, 800]);
        check(pod(100), &[900, 999]);
    }
}
