//! Scaling of a Deployment's ReplicaSets outside a rollout step (`scale`): during a rollout they are scaled
//! proportionally, so that scaling does not advance the rollout.

use super::{
    limits::{is_rolling, max_replicas, replicas},
    replica_set::PlannedReplicaSet,
    rollout_state::Rollout,
};
use std::cmp::{Ordering, Reverse};

impl Rollout<'_> {
    /// Returns whether `spec.replicas` has changed since the ReplicaSets were scaled (`isScalingEvent`).
    pub(super) fn is_scaled(&self) -> bool {
        let active = self.active(&self.all());
        active
            .iter()
            .any(|i| self.sets[*i].desired_replicas_annotation().is_some_and(|desired| desired != replicas(self.spec)))
    }

    /// Scales the ReplicaSets to `spec.replicas` (`scale`).
    pub(super) fn scale(&mut self) {
        let desired = replicas(self.spec);
        let old = self.old_replica_sets();
        let active = self.active(&self.all());
        let only = match active.as_slice() {
            [] => self.new.or(old.last().copied()),
            [one] => Some(*one),
            _ => None,
        };
        if let Some(only) = only {
            self.sets[only].scale_if_needed(desired, self.spec);
        } else if active.is_empty() {
            // There is no ReplicaSet to scale.
        } else if self.new_replica_set().is_some_and(|new| is_saturated(new, desired)) {
            for i in self.active(&old) {
                self.sets[i].scale_if_needed(0, self.spec);
            }
        } else if is_rolling(self.spec) {
            self.scale_proportionally(active);
        }
    }

    fn scale_proportionally(&mut self, mut active: Vec<usize>) {
        let desired = replicas(self.spec);
        let allowed = if desired > 0 { max_replicas(self.spec) } else { 0 };
        let add = allowed.saturating_sub(self.total_spec_replicas(&active));
        // Larger ReplicaSets first. Among equal ones, newer are scaled up first, and older down first.
        match add.cmp(&0) {
            Ordering::Greater => active.sort_by_key(|i| (Reverse(self.sets[*i].spec_replicas()), Reverse(*i))),
            Ordering::Less => active.sort_by_key(|i| (Reverse(self.sets[*i].spec_replicas()), *i)),
            Ordering::Equal => {}
        }
        let mut added = 0;
        let mut sizes = Vec::new();
        for i in &active {
            let part = self.get_proportion(&self.sets[*i], add, added);
            sizes.push(self.sets[*i].spec_replicas().saturating_add(part));
            added = added.saturating_add(part);
        }
        // The largest ReplicaSet gets the remainder.
        if let Some(largest) = sizes.first_mut() {
            *largest = largest.saturating_add(add.saturating_sub(added)).max(0);
        }
        for (i, size) in active.into_iter().zip(sizes) {
            self.sets[i].scale(size, self.spec);
        }
    }

    /// Returns the change for one ReplicaSet, within what is left (`GetProportion`).
    fn get_proportion(&self, set: &PlannedReplicaSet, add: i32, added: i32) -> i32 {
        if set.spec_replicas() == 0 || add == 0 || add == added {
            return 0;
        }
        let (fraction, allowed) = (self.replica_set_fraction(set), add.saturating_sub(added));
        if add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
    }

    /// Returns the change that keeps the ReplicaSet's fraction of all Pods (`getReplicaSetFraction`).
    fn replica_set_fraction(&self, set: &PlannedReplicaSet) -> i32 {
        if replicas(self.spec) == 0 {
            return -set.spec_replicas();
        }
        let all = i128::from(max_replicas(self.spec));
        let before = i128::from(
            set.max_replicas_annotation().filter(|max| *max > 0).unwrap_or_else(|| self.status.replicas.unwrap_or(0)),
        );
        if before <= 0 {
            return 0;
        }
        // Rounds to the nearest integer.
        let size = (2 * i128::from(set.spec_replicas()) * all + before).div_euclid(2 * before);
        i32::try_from(size).unwrap_or(i32::MAX).saturating_sub(set.spec_replicas())
    }
}

/// Returns whether the new ReplicaSet has all desired Pods available (`IsSaturated`).
fn is_saturated(new: &PlannedReplicaSet, desired: i32) -> bool {
    new.spec_replicas() == desired
        && new.desired_replicas_annotation() == Some(desired)
        && new.available_replicas() == desired
}
