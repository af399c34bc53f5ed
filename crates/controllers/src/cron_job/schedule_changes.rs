//! CronJobs whose schedule has changed since their last sync.

use parking_lot::Mutex;
use std::collections::HashSet;

/// Keys of the CronJobs.
#[derive(Debug, Default)]
pub(super) struct ScheduleChanges(Mutex<HashSet<String>>);

impl ScheduleChanges {
    pub(super) fn insert(&self, key: String) {
        self.0.lock().insert(key);
    }

    /// Takes the change of a CronJob, before the CronJob is read: a change that is observed later belongs to the next
    /// sync.
    pub(super) fn take<'a>(&'a self, key: &'a str) -> ScheduleChange<'a> {
        ScheduleChange { changes: self, key, is_set: self.0.lock().remove(key) }
    }
}

/// The change of a CronJob during its sync. It is put back unless the sync ends with [`Self::done`].
#[derive(Debug)]
pub(super) struct ScheduleChange<'a> {
    changes: &'a ScheduleChanges,
    key: &'a str,
    is_set: bool,
}

impl ScheduleChange<'_> {
    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    pub(super) fn done(mut self) {
        self.is_set = false;
    }
}

impl Drop for ScheduleChange<'_> {
    fn drop(&mut self) {
        if self.is_set {
            self.changes.insert(self.key.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_put_back_unless_the_sync_is_done() {
        let changes = ScheduleChanges::default();
        assert!(!changes.take("a").is_set());
        changes.insert("a".into());
        // A failed sync.
        assert!(changes.take("a").is_set());
        let taken = changes.take("a");
        assert!(taken.is_set());
        changes.insert("a".into());
        taken.done();
        // The change during that sync.
        let taken = changes.take("a");
        assert!(taken.is_set());
        taken.done();
        assert!(!changes.take("a").is_set());
    }
}
