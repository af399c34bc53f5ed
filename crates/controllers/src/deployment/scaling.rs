//! What becomes of the ReplicaSets of a Deployment that is scaled, or paused: each keeps its part of all Pods
//! (`scale`), so that scaling does not hasten a rollout.

use super::limits::{is_rolling, most, replicas};
use super::rollout::Rollout;
use super::set::Set;
use std::cmp::{Ordering, Reverse};

impl Rollout<'_> {
    /// Whether the Deployment has another number of replicas than when its ReplicaSets were scaled.
    pub(super) fn is_scaled(&self) -> bool {
        let active = self.active(&self.all());
        active.iter().any(|i| self.sets[*i].desired().is_some_and(|desired| desired != replicas(self.spec)))
    }

    pub(super) fn scale(&mut self) {
        let wanted = replicas(self.spec);
        let old = self.old();
        let active = self.active(&self.all());
        let only = match active.as_slice() {
            [] => self.new.or(old.last().copied()),
            [one] => Some(*one),
            _ => None,
        };
        if let Some(only) = only {
            self.sets[only].scale_if_another(wanted, self.spec);
        } else if active.is_empty() {
            // There is none yet.
        } else if self.newest().is_some_and(|new| is_saturated(new, wanted)) {
            for i in self.active(&old) {
                self.sets[i].scale_if_another(0, self.spec);
            }
        } else if is_rolling(self.spec) {
            self.scale_in_proportion(active);
        }
    }

    fn scale_in_proportion(&mut self, mut active: Vec<usize>) {
        let wanted = replicas(self.spec);
        let allowed = if wanted > 0 { most(self.spec) } else { 0 };
        let add = allowed.saturating_sub(self.size(&active));
        // The larger first; of those of one size the newer are scaled up first, and the older down.
        match add.cmp(&0) {
            Ordering::Greater => active.sort_by_key(|i| (Reverse(self.sets[*i].size()), Reverse(*i))),
            Ordering::Less => active.sort_by_key(|i| (Reverse(self.sets[*i].size()), *i)),
            Ordering::Equal => {}
        }
        let mut added = 0;
        let mut sizes = Vec::new();
        for i in &active {
            let part = self.proportion(&self.sets[*i], add, added);
            sizes.push(self.sets[*i].size().saturating_add(part));
            added = added.saturating_add(part);
        }
        // What is left over is the largest's.
        if let Some(largest) = sizes.first_mut() {
            *largest = largest.saturating_add(add.saturating_sub(added)).max(0);
        }
        for (i, size) in active.into_iter().zip(sizes) {
            self.sets[i].scale(size, self.spec);
        }
    }

    /// `GetProportion`.
    fn proportion(&self, set: &Set, add: i32, added: i32) -> i32 {
        if set.size() == 0 || add == 0 || add == added {
            return 0;
        }
        let (fraction, allowed) = (self.fraction(set), add.saturating_sub(added));
        if add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
    }

    /// By how many its size must change to keep its part of all (`getReplicaSetFraction`).
    fn fraction(&self, set: &Set) -> i32 {
        if replicas(self.spec) == 0 {
            return -set.size();
        }
        let all = i128::from(most(self.spec));
        let before = i128::from(set.max().filter(|max| *max > 0).unwrap_or_else(|| self.status.replicas.unwrap_or(0)));
        if before <= 0 {
            return 0;
        }
        // Rounding to the nearest.
        let size = (2 * i128::from(set.size()) * all + before).div_euclid(2 * before);
        i32::try_from(size).unwrap_or(i32::MAX).saturating_sub(set.size())
    }
}

/// Whether the newest has all the Pods that there should be.
fn is_saturated(new: &Set, wanted: i32) -> bool {
    new.size() == wanted && new.desired() == Some(wanted) && new.available() == wanted
}
