//! Decides which Pods of a DaemonSet to create and delete (`podsShouldBeOnNode`, `rollingUpdate`), and its status.

use super::node::{NodeSummary, node_should_run_daemon_pod};
use crate::{
    controller_history::CONTROLLER_REVISION_HASH,
    int_or_string::{Rounding, scaled_value},
    pod_summary::PodSummary,
};
use informer::Cached;
use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus},
    apimachinery::pkg::util::intstr::IntOrString,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Snapshot of a DaemonSet, its Pods by node, and the nodes.
pub(super) struct DaemonSetSnapshot<'a> {
    pub(super) spec: &'a DaemonSetSpec,
    pub(super) nodes: &'a [Arc<NodeSummary>],
    /// By node; oldest first.
    pub(super) pods: BTreeMap<String, Vec<Arc<PodSummary>>>,
    /// Hash of the update revision.
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Nodes to create a Pod for.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<PodSummary>>,
    /// Terminal Pods among [`Self::delete`], for Events.
    pub(super) terminated: Vec<(String, Arc<PodSummary>)>,
    pub(super) requeue_after: Option<Duration>,
}

impl<'a> DaemonSetSnapshot<'a> {
    /// Creates a snapshot. `pods` are those that the set controls.
    pub(super) fn new(
        spec: &'a DaemonSetSpec,
        nodes: &'a [Arc<NodeSummary>],
        pods: &[Arc<PodSummary>],
        hash: &'a str,
        now: Timestamp,
    ) -> Self {
        let mut by_node: BTreeMap<String, Vec<Arc<PodSummary>>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !(pod.terminating && pod.is_terminal())) {
            if let Some(node) = pod.node.clone().or_else(|| pod.target_node.clone()) {
                by_node.entry(node).or_default().push(Arc::clone(pod));
            }
        }
        for pods in by_node.values_mut() {
            // Bound Pods are older than unbound ones.
            pods.sort_by(|a, b| (a.node.is_none(), a.created, &a.name).cmp(&(b.node.is_none(), b.created, &b.name)));
        }
        Self { spec, nodes, pods: by_node, hash, now }
    }

    fn pods_on(&self, node: &str) -> &[Arc<PodSummary>] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    fn is_updated(&self, pod: &PodSummary) -> bool {
        pod.labels.get(CONTROLLER_REVISION_HASH).is_some_and(|hash| hash == self.hash)
    }

    fn is_available(&self, pod: &PodSummary) -> bool {
        pod.is_available(self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    fn desired_number_scheduled(&self) -> i32 {
        let desired = self.nodes.iter().filter(|node| node_should_run_daemon_pod(self.spec, node).0);
        i32::try_from(desired.count()).unwrap_or(i32::MAX)
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        strategy.is_none_or(|s| s.type_.as_deref().unwrap_or("RollingUpdate") == "RollingUpdate")
    }

    /// Returns `maxSurge` and `maxUnavailable` as numbers.
    fn surge_and_unavailable(&self) -> (i32, i32) {
        let rolling = self.spec.update_strategy.as_ref().and_then(|s| s.rolling_update.clone()).unwrap_or_default();
        let (surge, one) = (rolling.max_surge.unwrap_or(IntOrString::Int(0)), IntOrString::Int(1));
        let surge =
            if self.is_rolling() { scaled_value(&surge, self.desired_number_scheduled(), Rounding::Up) } else { 0 };
        let unavailable =
            scaled_value(&rolling.max_unavailable.unwrap_or(one), self.desired_number_scheduled(), Rounding::Up);
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }

    /// Plans a sync. `backoff` returns the remaining delay before a failed Pod of a node is deleted.
    pub(super) fn plan(&self, mut backoff: impl FnMut(&str) -> Option<Duration>) -> Plan {
        let mut plan = Plan::default();
        let surges = self.surge_and_unavailable().0 > 0;
        for node in self.nodes {
            self.pods_should_be_on_node(node, surges, &mut plan, &mut backoff);
        }
        // No other controller deletes unbound Pods of a node that is gone.
        let there = |name: &String| self.nodes.iter().any(|node| node.name() == name);
        let lost = self.pods.iter().filter(|(node, _)| !there(node)).flat_map(|(_, pods)| pods);
        plan.delete.extend(lost.filter(|pod| pod.node.is_none() && !pod.terminating).cloned());
        if plan.create.is_empty() && plan.delete.is_empty() && self.is_rolling() {
            self.rolling_update(&mut plan);
        }
        plan
    }

    fn pods_should_be_on_node(
        &self,
        node: &NodeSummary,
        surges: bool,
        plan: &mut Plan,
        backoff: &mut impl FnMut(&str) -> Option<Duration>,
    ) {
        let (node, (run, stay)) = (node.name(), node_should_run_daemon_pod(self.spec, node));
        let there = self.pods_on(node);
        if run && there.is_empty() {
            return plan.create.push(node.to_owned());
        }
        let mut running = Vec::new();
        for pod in there.iter().filter(|pod| !pod.terminating) {
            if !stay {
                plan.delete.push(Arc::clone(pod));
            } else if !pod.is_terminal() {
                running.push(Arc::clone(pod));
            } else if let Some(left) = Some(&pod.phase).filter(|p| *p == "Failed").and_then(|_| backoff(node)) {
                plan.requeue_after = Some(plan.requeue_after.map_or(left, |known| known.min(left)));
            } else {
                plan.terminated.push((node.to_owned(), Arc::clone(pod)));
                plan.delete.push(Arc::clone(pod));
            }
        }
        if !stay {
            return;
        }
        if !surges {
            plan.delete.extend(running.into_iter().skip(1));
        } else if running.is_empty() && run {
            plan.create.push(node.to_owned());
        } else if running.len() > 1 {
            self.prune_surge_pods(running, plan);
        }
    }

    /// Keeps one Pod of the update revision, and one old Pod until the new one is available.
    fn prune_surge_pods(&self, running: Vec<Arc<PodSummary>>, plan: &mut Plan) {
        let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| self.is_updated(pod));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (old.ready.is_none() || self.is_available(new))
        {
            plan.delete.push(Arc::clone(old));
        }
        plan.delete.extend(new.into_iter().skip(1).chain(old.into_iter().skip(1)));
    }

    /// Replaces Pods of old revisions within `maxUnavailable` or `maxSurge`.
    fn rolling_update(&self, plan: &mut Plan) {
        let (surge, unavailable) = self.surge_and_unavailable();
        let (mut missing, mut extra, mut candidates, mut certain) = (0, 0, Vec::new(), Vec::new());
        for node in self.nodes {
            let there = self.pods_on(node.name());
            let (run, _) = node_should_run_daemon_pod(self.spec, node);
            if !run && there.is_empty() {
                continue;
            }
            let alive = there.iter().filter(|pod| !pod.terminating);
            let (new, old): (Vec<_>, Vec<_>) = alive.partition(|pod| self.is_updated(pod));
            match (new.as_slice(), old.as_slice()) {
                ([], [old]) if self.is_available(old) => candidates.push((node.name().to_owned(), Arc::clone(old))),
                ([], [old]) => certain.push((node.name().to_owned(), Arc::clone(old))),
                ([new], []) => missing += i32::from(!self.is_available(new)),
                ([new], [old]) if surge > 0 && self.is_available(new) => plan.delete.push(Arc::clone(old)),
                ([], []) => missing += 1,
                _ => {
                    missing += 1;
                    extra += 1;
                }
            }
        }
        let remaining = if surge > 0 { surge.saturating_sub(extra) } else { unavailable.saturating_sub(missing) };
        candidates.truncate(usize::try_from(remaining).unwrap_or(0));
        for (node, pod) in certain.into_iter().chain(candidates) {
            if surge > 0 { plan.create.push(node) } else { plan.delete.push(pod) }
        }
    }

    /// Returns the status (`updateDaemonSetStatus`).
    pub(super) fn status(&self, set: &DaemonSet) -> DaemonSetStatus {
        let old_status = set.status.clone().unwrap_or_default();
        let mut status = DaemonSetStatus {
            observed_generation: set.metadata.generation,
            collision_count: old_status.collision_count,
            conditions: old_status.conditions,
            ..DaemonSetStatus::default()
        };
        let (mut updated, mut available) = (0, 0);
        for node in self.nodes {
            let there = self.pods_on(node.name());
            if !node_should_run_daemon_pod(self.spec, node).0 {
                status.number_misscheduled += i32::from(!there.is_empty());
                continue;
            }
            status.desired_number_scheduled += 1;
            let Some(pod) = there.first() else { continue };
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pod.ready.is_some());
            available += i32::from(self.is_available(pod));
            updated += i32::from(self.is_updated(pod));
        }
        let some = |n: i32| Some(n).filter(|n| *n != 0);
        status.updated_number_scheduled = some(updated);
        status.number_available = some(available);
        status.number_unavailable = some(status.desired_number_scheduled - available);
        status
    }
}
