//! Which images go, and when (upstream's `image_gc_manager.go`). Pure: time, images and disk are arguments.

use crate::config::ImagesConfiguration;
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

/// Upstream's period: how long nothing is looked at when nothing is known to fall due.
pub(crate) const PERIOD: Duration = Duration::from_secs(300);
/// Two looks are at least so far apart.
const SHORTEST: Duration = Duration::from_secs(1);

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Present {
    pub(crate) id: String,
    pub(crate) size: u64,
    /// Whether a container was made of it, a Pod of this node names it, or the runtime needs it.
    pub(crate) in_use: bool,
}

/// The file system that images are on, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) capacity: u64,
    pub(crate) available: u64,
}

/// What is known of an image over time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    first_seen: Timestamp,
    /// When it was last used; when it was first seen, if it never was.
    last_used: Timestamp,
    in_use: bool,
    size: u64,
}

/// The images of the node, over time.
#[derive(Debug)]
pub(crate) struct Collector {
    records: BTreeMap<String, Record>,
    began: Timestamp,
}

/// What has to go for the disk's sake.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Bytes that are to be freed.
    pub(crate) amount: u64,
    /// Images that may go, the longest unused first, with their sizes.
    pub(crate) images: Vec<(String, u64)>,
}

pub(super) fn signed(d: Duration) -> SignedDuration {
    SignedDuration::try_from(d).unwrap_or(SignedDuration::MAX)
}

impl Collector {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { records: BTreeMap::new(), began: now }
    }

    /// Takes note of all images that are there now.
    pub(crate) fn see(&mut self, images: Vec<Present>, now: Timestamp) {
        let ids: HashSet<String> = images.iter().map(|image| image.id.clone()).collect();
        self.records.retain(|id, _| ids.contains(id));
        for image in images {
            let record = self.records.entry(image.id).or_insert(Record {
                first_seen: now,
                last_used: now,
                in_use: false,
                size: 0,
            });
            // One that was in use at the last look may have been until this very moment.
            if image.in_use || record.in_use {
                record.last_used = now;
            }
            (record.in_use, record.size) = (image.in_use, image.size);
        }
    }

    /// Takes note of an image that was removed.
    pub(crate) fn removed(&mut self, id: &str) {
        self.records.remove(id);
    }

    /// Unused images, the longest unused first; of those that are alike, the longest there.
    fn unused(&self) -> Vec<(&String, &Record)> {
        let mut unused: Vec<_> = self.records.iter().filter(|(_, record)| !record.in_use).collect();
        unused.sort_by_key(|(_, record)| (record.last_used, record.first_seen));
        unused
    }

    /// Images that nobody has used for longer than `imageMaximumGCAge`; none before the kubelet has run for so long.
    pub(crate) fn too_old(&self, config: &ImagesConfiguration, now: Timestamp) -> Vec<String> {
        let max = signed(config.image_maximum_gc_age);
        if max.is_zero() || now.duration_since(self.began) <= max {
            return Vec::new();
        }
        let old = |record: &Record| now.duration_since(record.last_used) > max;
        self.unused().into_iter().filter(|(_, record)| old(record)).map(|(id, _)| id.clone()).collect()
    }

    /// What has to go when the disk is fuller than `imageGCHighThresholdPercent`: down to `imageGCLowThresholdPercent`,
    /// of images that have been there for `imageMinimumGCAge`.
    pub(crate) fn excess(&self, config: &ImagesConfiguration, disk: Disk, now: Timestamp) -> Option<Excess> {
        let (capacity, available) = (u128::from(disk.capacity), u128::from(disk.available.min(disk.capacity)));
        let used_percent = 100 - (available * 100).checked_div(capacity)?;
        if used_percent < u128::try_from(config.image_gc_high_threshold_percent).ok()? {
            return None;
        }
        let low = u128::try_from(config.image_gc_low_threshold_percent).unwrap_or(0).min(100);
        let amount = u64::try_from((capacity * (100 - low) / 100).saturating_sub(available)).unwrap_or(u64::MAX);
        Some(Excess { amount, images: self.free_to_go(config, now) })
    }

    /// Unused images that have been there for `imageMinimumGCAge`, the longest unused first, with their sizes.
    pub(crate) fn free_to_go(&self, config: &ImagesConfiguration, now: Timestamp) -> Vec<(String, u64)> {
        let min = signed(config.image_minimum_gc_age);
        let old_enough = |record: &Record| now.duration_since(record.first_seen) >= min;
        let images = self.unused().into_iter().filter(|(_, record)| old_enough(record));
        images.map(|(id, record)| (id.clone(), record.size)).collect()
    }

    /// When to look again: when an image grows too old, or, on a full disk, old enough.
    pub(crate) fn next(&self, config: &ImagesConfiguration, full: bool, now: Timestamp) -> Timestamp {
        let (max, min) = (config.image_maximum_gc_age, config.image_minimum_gc_age);
        let unused = self.unused();
        let old = unused.iter().filter(|_| !max.is_zero()).map(|(_, record)| record.last_used.max(self.began) + max);
        let enough = unused.iter().filter(|_| full).map(|(_, record)| record.first_seen + min).filter(|at| *at > now);
        let due = old.chain(enough).min().unwrap_or(now + PERIOD);
        due.clamp(now + SHORTEST, now + PERIOD)
    }
}

#[cfg(test)]
#[path = "gc_tests.rs"]
mod tests;
