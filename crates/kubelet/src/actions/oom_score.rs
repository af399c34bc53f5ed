//! Whom the kernel ends first when memory lacks (`pkg/kubelet/qos/policy.go`).

use api::{
    pod::containers,
    quantity::Amount,
    resources::{QosClass, Side, aggregate, amounts, container, qos_class},
};
use k8s_openapi::api::core::v1::{Container as Spec, PodSpec};

/// Who is spared for as long as possible.
const SPARED: i64 = -997;
/// Who goes first.
const FIRST: i64 = 1_000;
const NODE_CRITICAL: &str = "system-node-critical";

/// The `oom_score_adj` of a container: the class of its Pod decides, and between the classes who asked for much goes late.
/// `capacity` is the node's memory.
pub(super) fn of(pod: &PodSpec, spec: &Spec, capacity: Amount) -> i64 {
    if pod.priority_class_name.as_deref() == Some(NODE_CRITICAL) {
        return SPARED;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => SPARED,
        QosClass::BestEffort => FIRST,
        QosClass::Burstable => {
            let share = unrequested_share(pod);
            let score = |requested: i64| FIRST - (requested + share).saturating_mul(FIRST) / capacity.value().max(1);
            let own = score(requested(spec));
            // A sidecar does not go before those whom it serves.
            let is_sidecar = pod.init_containers.iter().flatten().any(|c| c.name == spec.name)
                && spec.restart_policy.as_deref() == Some("Always");
            let served = pod.containers.iter().map(requested).min().filter(|_| is_sidecar).map(score);
            own.min(served.unwrap_or(own)).clamp(FIRST + SPARED, FIRST - 1)
        }
    }
}

fn requested(spec: &Spec) -> i64 {
    container(spec, Side::Requests).get("memory").map_or(0, |memory| memory.value())
}

/// What each container has of that which the Pod asks for and none of its containers does (KEP-2837).
fn unrequested_share(pod: &PodSpec) -> i64 {
    let whole = amounts(pod.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let Some(whole) = whole.get("memory").filter(|memory| !memory.is_zero()) else { return 0 };
    let theirs = aggregate(pod, Side::Requests).get("memory").copied().unwrap_or_default();
    let count = i64::try_from(containers(pod).count()).unwrap_or(i64::MAX).max(1);
    whole.minus(theirs).value() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The scores of all containers on a node with memory for 1,000.
    #[track_caller]
    fn check(pod: Value, expected: &[i64]) {
        let spec: PodSpec = serde_json::from_value(pod.clone()).unwrap();
        let scores: Vec<i64> = containers(&spec).map(|(_, c)| of(&spec, c, Amount::units(1_000))).collect();
        assert_eq!(scores, expected, "{pod}");
    }

    fn asks(name: &str, memory: i64) -> Value {
        json!({"name": name, "resources": {"requests": {"memory": memory.to_string()}}})
    }

    #[test]
    fn who_asked_for_much_memory_is_killed_late() {
        for (requested, expected) in [(1, 999), (500, 500), (999, 3), (1000, 3)] {
            check(json!({"containers": [asks("c", requested)]}), &[expected]);
        }
        check(json!({"containers": [{"name": "c"}]}), &[1_000]);
        check(json!({"containers": [{"name": "c"}, asks("d", 100)]}), &[999, 900]);
        let limits = json!({"cpu": "1", "memory": "100"});
        check(json!({"containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}]}), &[-997]);
    }

    #[test]
    fn what_the_node_needs_is_spared() {
        check(json!({"priorityClassName": NODE_CRITICAL, "containers": [{"name": "c"}, asks("d", 100)]}), &[-997; 2]);
    }

    #[test]
    fn a_sidecar_does_not_go_before_those_whom_it_serves() {
        let sidecar = json!({"name": "s", "restartPolicy": "Always"});
        check(
            json!({"initContainers": [sidecar, {"name": "i"}], "containers": [asks("c", 300), asks("d", 500)]}),
            &[700, 999, 700, 500],
        );
    }

    #[test]
    fn what_the_pod_asks_for_is_shared() {
        let pod = |whole: i64| json!({"resources": {"requests": {"memory": whole.to_string()}}, "containers": [asks("c", 100), {"name": "d"}]});
        check(pod(500), &[700, 800]);
        check(pod(100), &[900, 999]);
    }
}
