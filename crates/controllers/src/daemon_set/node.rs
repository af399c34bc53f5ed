//! Nodes that should run a DaemonSet's Pod, and the node affinity of such a Pod (`pkg/controller/daemon/util`).

use informer::Cached;
use k8s_openapi::{
    api::{
        apps::v1::DaemonSetSpec,
        core::v1::{
            Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, NodeSpec, PodSpec, Toleration,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// Summary of a node: name, labels and taints.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeSummary(pub(super) Node);

impl Cached for NodeSummary {
    fn namespace(&self) -> &'static str {
        ""
    }

    fn name(&self) -> &str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }
}

impl NodeSummary {
    pub(super) fn from_node(node: Node) -> Self {
        let ObjectMeta { name, labels, .. } = node.metadata;
        let taints = node.spec.and_then(|spec| spec.taints);
        Self(Node {
            metadata: ObjectMeta { name, labels, ..ObjectMeta::default() },
            spec: Some(NodeSpec { taints, ..NodeSpec::default() }),
            status: None,
        })
    }
}

/// Returns whether the node should run a Pod, and whether an existing Pod may continue to run
/// (`NodeShouldRunDaemonPod`).
pub(super) fn node_should_run_daemon_pod(spec: &DaemonSetSpec, place: &NodeSummary) -> (bool, bool) {
    let pod = spec.template.spec.clone().unwrap_or_default();
    let named = pod.node_name.as_deref().is_none_or(|name| name.is_empty() || name == place.name());
    if !named || !api::affinity::matches_node(&pod, &place.0) {
        return (false, false);
    }
    let taints = place.0.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let tolerations = tolerations(&pod);
    let free_of = |effects: &[&str]| api::taint::find_untolerated_taint(&taints, &tolerations, effects).is_none();
    (free_of(&["NoSchedule", "NoExecute"]), free_of(&["NoExecute"]))
}

/// Returns the Pod's tolerations with the default ones of DaemonSets (`AddOrUpdateDaemonPodTolerations`).
fn tolerations(pod: &PodSpec) -> Vec<Toleration> {
    let mut all = pod.tolerations.clone().unwrap_or_default();
    let conditions = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ];
    let on_network = pod.host_network == Some(true);
    for (name, effect) in conditions.into_iter().filter(|(name, _)| *name != "network-unavailable" || on_network) {
        let toleration = Toleration {
            key: Some(format!("node.kubernetes.io/{name}")),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

/// Sets the node affinity to one node (`ReplaceDaemonSetPodNodeNameNodeAffinity`).
pub(super) fn set_node_affinity(pod: &mut PodSpec, node: &str) {
    pod.tolerations = Some(tolerations(pod));
    let is_it = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![is_it]), match_expressions: None };
    let affinity = pod.affinity.get_or_insert_default().node_affinity.get_or_insert_with(NodeAffinity::default);
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer::pod_summary::target_node_name;
    use serde_json::{Value, json};

    fn spec(pod: Value) -> DaemonSetSpec {
        serde_json::from_value(json!({"selector": {}, "template": {"spec": pod}})).unwrap()
    }

    fn place(labels: Value, taints: Value) -> NodeSummary {
        let node = json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}});
        NodeSummary::from_node(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn node_runs_a_daemon_pod_by_selector_and_tolerations() {
        let plain = || spec(json!({"containers": []}));
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        assert_eq!(node_should_run_daemon_pod(&plain(), &place(json!({}), json!([]))), (true, true));
        let chosen = spec(json!({"containers": [], "nodeSelector": {"disk": "ssd"}}));
        assert_eq!(node_should_run_daemon_pod(&chosen, &place(json!({}), json!([]))), (false, false));
        assert_eq!(node_should_run_daemon_pod(&chosen, &place(json!({"disk": "ssd"}), json!([]))), (true, true));
        assert_eq!(node_should_run_daemon_pod(&plain(), &place(json!({}), taint("a", "NoSchedule"))), (false, true));
        assert_eq!(node_should_run_daemon_pod(&plain(), &place(json!({}), taint("a", "NoExecute"))), (false, false));
        let not_ready = taint("node.kubernetes.io/not-ready", "NoExecute");
        assert_eq!(node_should_run_daemon_pod(&plain(), &place(json!({}), not_ready)), (true, true));
        let cordoned = taint("node.kubernetes.io/unschedulable", "NoSchedule");
        assert_eq!(node_should_run_daemon_pod(&plain(), &place(json!({}), cordoned)), (true, true));
        let elsewhere = spec(json!({"containers": [], "nodeName": "other"}));
        assert_eq!(node_should_run_daemon_pod(&elsewhere, &place(json!({}), json!([]))), (false, false));
    }

    #[test]
    fn daemon_pod_has_affinity_to_its_node() {
        let mut pod = spec(json!({"containers": [], "hostNetwork": true})).template.spec.unwrap();
        set_node_affinity(&mut pod, "n");
        assert_eq!((target_node_name(&pod).as_deref(), pod.tolerations.as_ref().unwrap().len()), (Some("n"), 7));
        set_node_affinity(&mut pod, "m");
        assert_eq!((target_node_name(&pod).as_deref(), pod.tolerations.unwrap().len()), (Some("m"), 7));
    }
}
