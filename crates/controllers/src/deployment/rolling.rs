//! Strategy RollingUpdate (`pkg/controller/deployment/rolling.go`).

use super::{
    limits::{max_unavailable, replicas},
    rollout_state::Rollout,
    status::is_complete,
};
use crate::int_or_string::saturating_sum;

impl Rollout<'_> {
    /// Scales up the new ReplicaSet, otherwise scales down old ones (`rolloutRolling`).
    pub(super) fn rollout_rolling(&mut self) {
        self.create_new_replica_set();
        if self.reconcile_new_replica_set() || self.reconcile_old_replica_sets() {
            return;
        }
        if is_complete(self.deployment, self.spec, &self.status) {
            self.cleanup_deployment();
        }
    }

    /// Scales the new ReplicaSet within `maxSurge` (`reconcileNewReplicaSet`).
    fn reconcile_new_replica_set(&mut self) -> bool {
        let Some(new) = self.new else { return false };
        let (size, wanted) = (self.sets[new].spec_replicas(), replicas(self.spec));
        let size = if size > wanted { wanted } else { self.new_rs_new_replicas() };
        // The Event of a creation reports its size.
        self.sets[new].observed.is_some() && self.sets[new].scale_if_needed(size, self.spec)
    }

    /// Scales down old ReplicaSets within `maxUnavailable` (`reconcileOldReplicaSets`).
    fn reconcile_old_replica_sets(&mut self) -> bool {
        let Some(new) = self.new_replica_set() else { return false };
        let old = self.active(&self.old_replica_sets());
        let least = replicas(self.spec).saturating_sub(max_unavailable(self.spec));
        // Unavailable Pods of the new ReplicaSet must not be replaced by deleting old Pods.
        let missing = new.spec_replicas().saturating_sub(new.available_replicas());
        let excess = self.total_spec_replicas(&self.all()).saturating_sub(least).saturating_sub(missing);
        if old.is_empty() || excess <= 0 {
            return false;
        }
        let unhealthy = self.cleanup_unhealthy_replicas(&old, excess);
        let healthy = self.scale_down_old_replica_sets(&old, least);
        unhealthy || healthy
    }

    /// Scales down unavailable old Pods first (`cleanupUnhealthyReplicas`).
    fn cleanup_unhealthy_replicas(&mut self, old: &[usize], most: i32) -> bool {
        let mut dropped = 0;
        for i in old {
            let set = &mut self.sets[*i];
            let unhealthy = set.spec_replicas().saturating_sub(set.available_replicas()).max(0).min(most - dropped);
            if unhealthy > 0 {
                set.scale_if_needed(set.spec_replicas() - unhealthy, self.spec);
                dropped += unhealthy;
            }
        }
        dropped > 0
    }

    /// Scales down available old Pods that exceed the required number (`scaleDownOldReplicaSetsForRollingUpdate`).
    fn scale_down_old_replica_sets(&mut self, old: &[usize], least: i32) -> bool {
        let available = saturating_sum(self.sets.iter().map(super::replica_set::PlannedReplicaSet::available_replicas));
        let mut excess = available.saturating_sub(least);
        let mut dropped = false;
        for i in old {
            let set = &mut self.sets[*i];
            let less = set.spec_replicas().min(excess);
            if less > 0 {
                set.scale_if_needed(set.spec_replicas() - less, self.spec);
                excess -= less;
                dropped = true;
            }
        }
        dropped
    }
}
