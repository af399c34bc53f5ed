//! Strategy Recreate (`pkg/controller/deployment/recreate.go`).

use super::{limits::replicas, rollout_state::Rollout, status::is_complete};
use crate::int_or_string::saturating_sum;

impl Rollout<'_> {
    /// Scales down old ReplicaSets to 0, and creates the new one when no old Pod is left (`rolloutRecreate`).
    /// `old_pods_running` says whether Pods of other ReplicaSets run.
    pub(super) fn rollout_recreate(&mut self, old_pods_running: bool) {
        let old = self.active(&self.old_replica_sets());
        let mut shrunk = false;
        for i in old {
            shrunk |= self.sets[i].scale_if_needed(0, self.spec);
        }
        let left = saturating_sum(self.old_replica_sets().iter().map(|i| self.sets[*i].status_replicas()));
        if shrunk || left > 0 || old_pods_running {
            return;
        }
        self.create_new_replica_set();
        if let Some(new) = self.new {
            self.sets[new].scale_if_needed(replicas(self.spec), self.spec);
        }
        if is_complete(self.deployment, self.spec, &self.status) {
            self.cleanup_deployment();
        }
    }
}
