//! Quota of a store: the maximum size of all objects together.
//!
//! All objects are kept in memory, so without a quota one client could use all of it. As in etcd, writes that need
//! more space are refused at the quota, and reads and deletes continue. Cluster components may use a reserve beyond
//! the quota.

use crate::{Options, Record};
use tokio::sync::watch;

/// Bytes of an object in memory apart from its key and its data: allocations and its slot in the map.
const OVERHEAD_BYTES: u64 = 200;
/// The reserve for cluster components is the quota divided by this.
const RESERVE_DIVISOR: u64 = 10;
/// The alarm is cleared when at most this part of the quota is used, in percent.
const CLEAR_PERCENT: u64 = 95;

/// Quota that applies to a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaAllowance {
    /// The quota: for clients.
    #[default]
    Quota,
    /// The quota and the reserve of a tenth: for cluster components.
    Reserve,
    /// No limit: for writes that must precede a delete.
    Unlimited,
}

/// Usage of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all objects.
    pub bytes: u64,
    /// Quota in bytes.
    pub quota: u64,
}

impl QuotaAllowance {
    /// Returns the maximum size of the store after a write, in bytes.
    pub(crate) fn limit(self, quota: u64) -> u64 {
        match self {
            Self::Quota => quota,
            Self::Reserve => quota.saturating_add(quota / RESERVE_DIVISOR),
            Self::Unlimited => u64::MAX,
        }
    }
}

/// Returns the bytes of an object that count towards the quota.
pub(crate) fn object_size(record: &Record) -> u64 {
    (record.key.bytes() + record.data.entry().len()) as u64 + OVERHEAD_BYTES
}

/// Quota alarm (etcd's `NOSPACE`). It is raised by a refused write and cleared with hysteresis.
#[derive(Debug)]
pub(crate) struct Alarm {
    quota: u64,
    raised: watch::Sender<bool>,
}

impl Alarm {
    pub(crate) fn new(options: &Options, used: u64) -> Self {
        let alarm = Self { quota: options.quota_bytes, raised: watch::Sender::new(false) };
        alarm.update(used, false);
        alarm
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.raised.subscribe()
    }

    /// Updates the alarm with the used bytes, and whether a write was refused.
    pub(crate) fn update(&self, used: u64, refused: bool) {
        let was_raised = *self.raised.borrow();
        let is_nearly_full = used > self.quota / 100 * CLEAR_PERCENT;
        let is_raised = used >= self.quota || is_nearly_full && (was_raised || refused);
        if is_raised == was_raised {
            return;
        }
        if is_raised {
            tracing::error!(
                used,
                quota = self.quota,
                "store quota exceeded, refusing writes until objects are deleted"
            );
        } else {
            tracing::info!(used, quota = self.quota, "store has space again, accepting writes");
        }
        self.raised.send_replace(is_raised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarm_is_raised_by_a_refusal_and_cleared_with_hysteresis() {
        let alarm = Alarm::new(&Options { quota_bytes: 1000, ..Options::default() }, 0);
        for (used, refused, expected) in [
            (990, false, false),
            (500, true, false),
            (990, true, true),
            (960, false, true),
            (950, false, false),
            (960, false, false),
            (1000, false, true),
            (0, false, false),
        ] {
            alarm.update(used, refused);
            assert_eq!(*alarm.subscribe().borrow(), expected, "{used} {refused}");
        }
        assert!(*Alarm::new(&Options { quota_bytes: 1000, ..Options::default() }, 1001).subscribe().borrow());
    }

    #[test]
    fn reserve_is_a_tenth_and_never_overflows() {
        assert_eq!(QuotaAllowance::Quota.limit(1000), 1000);
        assert_eq!(QuotaAllowance::Reserve.limit(1000), 1100);
        assert_eq!(QuotaAllowance::Reserve.limit(u64::MAX), u64::MAX);
        assert_eq!(QuotaAllowance::Unlimited.limit(0), u64::MAX);
    }
}
