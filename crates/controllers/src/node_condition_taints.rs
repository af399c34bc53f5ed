//! Taints of a node's conditions; pure functions.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Conditions that add a NoSchedule taint while they are `True`.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// Returns the status of a node's condition.
pub(crate) fn condition<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    let mut conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.find(|c| c.type_ == name).map(|c| c.status.as_str())
}

/// Returns the node's desired taints, `None` if it has them. Other taints and existing timestamps are kept. Without
/// any ready node no NoExecute taint is added: the network may be at fault, and Pods could run nowhere else.
pub(crate) fn desired_taints(node: &Node, any_is_ready: bool, now: Timestamp) -> Option<Vec<Taint>> {
    let spec = node.spec.as_ref();
    let current = spec.and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let mut ours: Vec<(&str, &str)> = taints_of_conditions(node);
    ours.retain(|(_, effect)| any_is_ready || *effect != NO_EXECUTE);
    let mut taints: Vec<Taint> =
        current.iter().filter(|t| !is_managed(t) || ours.contains(&(&t.key, &t.effect))).cloned().collect();
    let mut changed = taints.len() != current.len();
    for (key, effect) in ours {
        if !taints.iter().any(|t| t.key == key && t.effect == effect) {
            let time_added = Some(Time(now));
            taints.push(Taint { key: key.into(), effect: effect.into(), time_added, ..Default::default() });
            changed = true;
        }
    }
    changed.then_some(taints)
}

fn taints_of_conditions(node: &Node) -> Vec<(&'static str, &'static str)> {
    let mut taints = match condition(node, "Ready") {
        Some("True") => vec![],
        Some("Unknown") => vec![(UNREACHABLE, NO_SCHEDULE), (UNREACHABLE, NO_EXECUTE)],
        Some(_) => vec![(NOT_READY, NO_SCHEDULE), (NOT_READY, NO_EXECUTE)],
        // A newly registered node runs no Pods to evict.
        None => vec![(NOT_READY, NO_SCHEDULE)],
    };
    let pressed = PRESSURES.iter().filter(|(name, _)| condition(node, name) == Some("True"));
    taints.extend(pressed.map(|(_, key)| (*key, NO_SCHEDULE)));
    if node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false) {
        taints.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    taints
}

/// Returns whether this controller manages the taint.
fn is_managed(taint: &Taint) -> bool {
    match taint.effect.as_str() {
        NO_EXECUTE => [NOT_READY, UNREACHABLE].contains(&taint.key.as_str()),
        NO_SCHEDULE => {
            [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&taint.key.as_str())
                || PRESSURES.iter().any(|(_, key)| *key == taint.key)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// `conditions` are `Type=Status`, taints are `key:Effect` without prefix; `-` means no change.
    #[track_caller]
    fn check(conditions: &[&str], unschedulable: bool, taints: &[&str], expected: &[&str]) {
        check_among(true, conditions, unschedulable, taints, expected);
    }

    #[track_caller]
    fn check_among(others: bool, conditions: &[&str], unschedulable: bool, taints: &[&str], expected: &[&str]) {
        let conditions: Vec<Value> = conditions
            .iter()
            .filter_map(|c| c.split_once('='))
            .map(|(name, status)| json!({ "type": name, "status": status }))
            .collect();
        let full = |key: &str| if key == "mine" { key.into() } else { format!("node.kubernetes.io/{key}") };
        let taints: Vec<Value> = taints
            .iter()
            .filter_map(|t| t.split_once(':'))
            .map(|(key, effect)| json!({ "key": full(key), "effect": effect }))
            .collect();
        let node: Node = serde_json::from_value(json!({
            "metadata": {},
            "spec": { "taints": taints, "unschedulable": unschedulable },
            "status": { "conditions": conditions },
        }))
        .expect("a node");
        let short = |t: &Taint| format!("{}:{}", t.key.trim_start_matches("node.kubernetes.io/"), t.effect);
        let got = desired_taints(&node, others, Timestamp::UNIX_EPOCH)
            .map_or_else(|| vec!["-".to_owned()], |taints| taints.iter().map(short).collect());
        assert_eq!(got, expected);
    }

    #[test]
    fn taints_match_the_node_conditions() {
        check(&["Ready=True"], false, &[], &["-"]);
        check(&[], false, &[], &["not-ready:NoSchedule"]);
        check(&["Ready=False"], false, &[], &["not-ready:NoSchedule", "not-ready:NoExecute"]);
        check(
            &["Ready=Unknown"],
            false,
            &["mine:NoSchedule"],
            &["mine:NoSchedule", "unreachable:NoSchedule", "unreachable:NoExecute"],
        );
        check(&["Ready=True"], false, &["not-ready:NoSchedule", "mine:NoExecute"], &["mine:NoExecute"]);
        check(
            &["Ready=True", "DiskPressure=True"],
            true,
            &[],
            &["disk-pressure:NoSchedule", "unschedulable:NoSchedule"],
        );
        check(
            &["Ready=True"],
            false,
            &["unschedulable:NoSchedule", "disk-pressure:NoExecute"],
            &["disk-pressure:NoExecute"],
        );
        check(&["Ready=False"], false, &["not-ready:NoExecute", "not-ready:NoSchedule"], &["-"]);
    }

    #[test]
    fn no_execute_taints_need_a_ready_node() {
        check_among(false, &["Ready=False"], false, &[], &["not-ready:NoSchedule"]);
        check_among(
            false,
            &["Ready=Unknown"],
            false,
            &["unreachable:NoExecute", "mine:NoExecute"],
            &["mine:NoExecute", "unreachable:NoSchedule"],
        );
    }
}
