//! Scheduling cycle of one Pod (`ScheduleOne` in `pkg/scheduler/schedule_one.go`). [`schedule_pod`] decides, and the
//! decision is written while the next Pod is scheduled.

use super::SchedulingLoop;
use crate::{
    cache::Uid,
    fit_error,
    pod_constraints::depends_on_other_pods,
    preemption::Preemption,
    queue::PendingPod,
    schedule_pod::{Decision, schedule_pod},
};
use informer::pod_summary::PodSummary;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use tokio::time::Instant;

impl SchedulingLoop {
    /// Schedules one Pod: selects a node, assumes the Pod there and starts to write the binding, or reports why the Pod
    /// is unschedulable (upstream's `ScheduleOne`, with `handleSchedulingFailure`).
    pub(super) fn schedule_one(&mut self, uid: Uid, pod: &PodSummary) {
        let pod = Arc::new(pod.to_scheduling_pod());
        let spec = pod.spec.as_ref();
        if spec.is_some_and(|s| s.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty())) {
            // A gated Pod was not attempted: it is scheduled without backoff when its gates are removed.
            self.queue.undo_attempt(&uid);
            if self.writer.needs_condition_update(&pod, "SchedulingGated", fit_error::SCHEDULING_GATED) {
                self.writes.spawn(self.writer.clone().gated(uid, pod));
            } else {
                self.queue.add_unschedulable(&uid, Instant::now());
            }
            return;
        }
        let decision = schedule_pod(&pod, &self.cache);
        self.may_depend_on_other_pods |= !matches!(decision, Decision::Bind(_)) && depends_on_other_pods(&pod);
        match decision {
            Decision::Bind(node) => {
                self.clear_nomination(&uid, Some(&node));
                self.cache.assume(&uid, &pod, &node);
                self.writes.spawn(self.writer.clone().bind(uid, pod, node));
            }
            Decision::BindVolumes(pod_volumes) => {
                if let Some(claim) =
                    pod_volumes.first_provisioned().filter(|_| self.queue.take_provisioning_requested(&uid))
                {
                    let message = fit_error::provisioning_failed(claim);
                    self.writes.spawn(self.writer.clone().unschedulable(uid, pod, message, None));
                    return;
                }
                // Waiting for volumes is not a scheduling failure: the Pod continues without backoff once they are
                // bound.
                self.queue.undo_attempt(&uid);
                if pod_volumes.is_empty() {
                    self.queue.add_unschedulable(&uid, Instant::now());
                } else {
                    self.cache.storage.assume(&pod_volumes);
                    self.writes.spawn(self.writer.clone().bind_volumes(uid, pod_volumes));
                }
            }
            Decision::Unschedulable(message) => {
                // The first node of a booting cluster must not wait for a backoff.
                if self.cache.node_count() == 0 {
                    self.queue.undo_attempt(&uid);
                }
                self.clear_nomination(&uid, None);
                self.writes.spawn(self.writer.clone().unschedulable(uid, pod, message, None));
            }
            Decision::UnschedulableKeepingNomination(message) => {
                let nominated = self.cache.nominated_node(&uid).map(str::to_owned);
                self.writes.spawn(self.writer.clone().unschedulable(uid, pod, message, nominated));
            }
            Decision::Preempt(preemption) => self.preempt(uid, pod, preemption),
        }
    }

    /// Nominates the Pod to the node and starts to delete the victims.
    fn preempt(&mut self, uid: Uid, pod: Arc<Pod>, preemption: Box<Preemption>) {
        for lower_nominated in &preemption.lower_nominated {
            self.cache.delete_nominated_pod(&lower_nominated.uid);
        }
        // Pods that lose their nomination may fit on other nodes.
        let is_lower_nominated =
            |pod: &PendingPod| preemption.lower_nominated.iter().any(|other| pod.summary.uid == other.uid);
        if !preemption.lower_nominated.is_empty() {
            self.queue.move_matching(Instant::now(), is_lower_nominated);
        }
        self.clear_nomination(&uid, Some(&preemption.node));
        let victims =
            preemption.victims.iter().filter(|victim| self.cache.mark_preempted(&victim.uid)).cloned().collect();
        self.cache.add_nominated_pod(&uid, &pod, &preemption.node);
        self.writes.spawn(self.writer.clone().execute_preemption(uid, pod, preemption, victims));
    }
}
