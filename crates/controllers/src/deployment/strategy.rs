//! How the Pods of old templates give way to those of the new one: bit by bit, or all at once.

use super::limits::{max_unavailable, replicas};
use super::rollout::Rollout;
use super::status::is_complete;
use crate::int_or_string::saturating_sum;

impl Rollout<'_> {
    /// `rolloutRolling`: first more of the new, then fewer of the old.
    pub(super) fn roll(&mut self) {
        self.make_newest();
        if self.grow_newest() || self.shrink_old() {
            return;
        }
        if is_complete(self.deployment, self.spec, &self.status) {
            self.clean_up();
        }
    }

    /// `rolloutRecreate`: none of the new before all of the old are gone. `old_pods_run` says whether Pods of others
    /// than the newest still run.
    pub(super) fn recreate(&mut self, old_pods_run: bool) {
        let old = self.active(&self.old());
        let mut shrunk = false;
        for i in old {
            shrunk |= self.sets[i].scale_if_another(0, self.spec);
        }
        let left = saturating_sum(self.old().iter().map(|i| self.sets[*i].pods()));
        if shrunk || left > 0 || old_pods_run {
            return;
        }
        self.make_newest();
        if let Some(new) = self.new {
            self.sets[new].scale_if_another(replicas(self.spec), self.spec);
        }
        if is_complete(self.deployment, self.spec, &self.status) {
            self.clean_up();
        }
    }

    fn grow_newest(&mut self) -> bool {
        let Some(new) = self.new else { return false };
        let (size, wanted) = (self.sets[new].size(), replicas(self.spec));
        let size = if size > wanted { wanted } else { self.new_size() };
        // One that is made now is told with the size that it has then.
        self.sets[new].is.is_some() && self.sets[new].scale_if_another(size, self.spec)
    }

    /// `reconcileOldReplicaSets`.
    fn shrink_old(&mut self) -> bool {
        let Some(new) = self.newest() else { return false };
        let old = self.active(&self.old());
        let least = replicas(self.spec).saturating_sub(max_unavailable(self.spec));
        // Those of the new that are not available must not let more of the old go.
        let missing = new.size().saturating_sub(new.available());
        let excess = self.size(&self.all()).saturating_sub(least).saturating_sub(missing);
        if old.is_empty() || excess <= 0 {
            return false;
        }
        let unhealthy = self.drop_unhealthy(&old, excess);
        let healthy = self.drop_healthy(&old, least);
        unhealthy || healthy
    }

    /// Those of the old that are not available go first: nobody will miss them.
    fn drop_unhealthy(&mut self, old: &[usize], most: i32) -> bool {
        let mut dropped = 0;
        for i in old {
            let set = &mut self.sets[*i];
            let unhealthy = set.size().saturating_sub(set.available()).max(0).min(most - dropped);
            if unhealthy > 0 {
                set.scale_if_another(set.size() - unhealthy, self.spec);
                dropped += unhealthy;
            }
        }
        dropped > 0
    }

    /// As many of the others go as there are more available than there must be.
    fn drop_healthy(&mut self, old: &[usize], least: i32) -> bool {
        let available = saturating_sum(self.sets.iter().map(super::set::Set::available));
        let mut excess = available.saturating_sub(least);
        let mut dropped = false;
        for i in old {
            let set = &mut self.sets[*i];
            let less = set.size().min(excess);
            if less > 0 {
                set.scale_if_another(set.size() - less, self.spec);
                excess -= less;
                dropped = true;
            }
        }
        dropped
    }
}
