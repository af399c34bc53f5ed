//! Order in which excess Pods are deleted (`ActivePodsWithRanks`).

use crate::pod_summary::PodSummary;
use jiff::Timestamp;
use std::{cmp::Reverse, collections::HashMap};

/// Returns the `count` active Pods to delete first (`getPodsToDelete`).
pub(crate) fn pods_to_delete(mut active: Vec<&PodSummary>, count: usize) -> Vec<&PodSummary> {
    let mut pods_per_node: HashMap<&str, usize> = HashMap::new();
    for node in active.iter().filter_map(|m| m.node.as_deref()) {
        *pods_per_node.entry(node).or_default() += 1;
    }
    active.sort_by_cached_key(|pod| {
        let same_node_rank = pod.node.as_deref().and_then(|node| pods_per_node.get(node)).copied().unwrap_or(0);
        (
            pod.node.is_some(),
            match pod.phase.as_str() {
                "Pending" => 0,
                "Unknown" | "" => 1,
                _ => 2,
            },
            pod.ready.is_some(),
            pod.deletion_cost,
            Reverse(same_node_rank),
            // Ready for the shortest time first, then most restarts, then youngest.
            Reverse(pod.ready.unwrap_or(Timestamp::MIN)),
            Reverse(pod.restarts),
            Reverse(pod.created.unwrap_or(Timestamp::MIN)),
        )
    });
    active.truncate(count);
    active
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Some(Timestamp::from_second(second).unwrap())
    }

    #[track_caller]
    fn check(pods: &[(&str, PodSummary)], expected: &[&str]) {
        let all: Vec<PodSummary> =
            pods.iter().map(|(name, m)| PodSummary { name: (*name).to_owned(), active: true, ..m.clone() }).collect();
        let gone = pods_to_delete(all.iter().collect(), all.len());
        assert_eq!(gone.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn excess_pods_are_ranked_for_deletion() {
        let on = |node: &str| PodSummary {
            node: Some(node.to_owned()),
            phase: "Running".to_owned(),
            ..PodSummary::default()
        };
        let ready = |node: &str, since| PodSummary { ready: at(since), ..on(node) };
        check(
            &[
                ("ready long", ready("a", 1)),
                ("ready", ready("b", 9)),
                ("running", on("c")),
                ("pending", PodSummary { phase: "Pending".to_owned(), ..on("d") }),
                ("nowhere", PodSummary { phase: "Pending".to_owned(), ..PodSummary::default() }),
            ],
            &["nowhere", "pending", "running", "ready", "ready long"],
        );
        check(
            &[("alone", ready("a", 1)), ("crowded", ready("b", 1)), ("also", ready("b", 1))],
            &["crowded", "also", "alone"],
        );
        let cheap = PodSummary { deletion_cost: -1, ..ready("a", 1) };
        check(&[("dear", PodSummary { deletion_cost: 5, ..ready("b", 9) }), ("cheap", cheap)], &["cheap", "dear"]);
        check(
            &[("calm", ready("a", 1)), ("restarts", PodSummary { restarts: 3, ..ready("b", 1) })],
            &["restarts", "calm"],
        );
        let made = |second| PodSummary { created: at(second), ..on("a") };
        check(&[("old", made(1)), ("new", made(2))], &["new", "old"]);
    }
}
