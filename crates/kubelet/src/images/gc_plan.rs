//! Image garbage collection decisions (upstream's `image_gc_manager.go`). Pure: time, images and disk are arguments.

use crate::config::ImagesConfiguration;
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

/// Upstream's garbage collection period, and the maximum one.
pub(crate) const PERIOD: Duration = Duration::from_secs(300);
/// Minimum period.
const MIN_PERIOD: Duration = Duration::from_secs(1);

/// Present image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PresentImage {
    pub(crate) id: String,
    pub(crate) size: u64,
    /// Whether a container or a Pod of this node uses it, or the runtime pins it.
    pub(crate) in_use: bool,
}

/// Usage of the image file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageFsUsage {
    pub(crate) capacity: u64,
    pub(crate) available: u64,
}

/// History of an image (`imageRecord`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageRecord {
    first_seen: Timestamp,
    /// When it was last used, or first seen if it never was.
    last_used: Timestamp,
    in_use: bool,
    size: u64,
}

/// History of the node's images.
#[derive(Debug)]
pub(crate) struct ImageTracker {
    records: BTreeMap<String, ImageRecord>,
    started: Timestamp,
}

/// Excess of disk usage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Bytes to free.
    pub(crate) amount: u64,
    /// Removable images with their sizes, least recently used first.
    pub(crate) images: Vec<(String, u64)>,
}

pub(super) fn signed(d: Duration) -> SignedDuration {
    SignedDuration::try_from(d).unwrap_or(SignedDuration::MAX)
}

impl ImageTracker {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { records: BTreeMap::new(), started: now }
    }

    /// Observes all present images.
    pub(crate) fn observe(&mut self, images: Vec<PresentImage>, now: Timestamp) {
        let ids: HashSet<String> = images.iter().map(|image| image.id.clone()).collect();
        self.records.retain(|id, _| ids.contains(id));
        for image in images {
            let record = self.records.entry(image.id).or_insert(ImageRecord {
                first_seen: now,
                last_used: now,
                in_use: false,
                size: 0,
            });
            // It may have been in use until now.
            if image.in_use || record.in_use {
                record.last_used = now;
            }
            (record.in_use, record.size) = (image.in_use, image.size);
        }
    }

    /// Removes the record of a removed image.
    pub(crate) fn removed(&mut self, id: &str) {
        self.records.remove(id);
    }

    /// Returns unused images, least recently used first, then oldest first.
    fn unused(&self) -> Vec<(&String, &ImageRecord)> {
        let mut unused: Vec<_> = self.records.iter().filter(|(_, record)| !record.in_use).collect();
        unused.sort_by_key(|(_, record)| (record.last_used, record.first_seen));
        unused
    }

    /// Returns images unused for longer than `imageMaximumGCAge`; none before the kubelet has run for that long.
    pub(crate) fn above_max_age(&self, config: &ImagesConfiguration, now: Timestamp) -> Vec<String> {
        let max = signed(config.image_maximum_gc_age);
        if max.is_zero() || now.duration_since(self.started) <= max {
            return Vec::new();
        }
        let old = |record: &ImageRecord| now.duration_since(record.last_used) > max;
        self.unused().into_iter().filter(|(_, record)| old(record)).map(|(id, _)| id.clone()).collect()
    }

    /// Returns the excess if disk usage is above `imageGCHighThresholdPercent`: images older than `imageMinimumGCAge` are to be
    /// removed until usage is `imageGCLowThresholdPercent`.
    ///
    /// A threshold of 100 without `imageMaximumGCAge` disables the collection (`StartGarbageCollection`). It must not merely
    /// be hard to reach: usage is rounded up, so that it is 100 % with less than 1 % available.
    pub(crate) fn excess(&self, config: &ImagesConfiguration, disk: ImageFsUsage, now: Timestamp) -> Option<Excess> {
        if config.image_gc_high_threshold_percent == 100 && config.image_maximum_gc_age.is_zero() {
            return None;
        }
        let (capacity, available) = (u128::from(disk.capacity), u128::from(disk.available.min(disk.capacity)));
        let used_percent = 100 - (available * 100).checked_div(capacity)?;
        if used_percent < u128::try_from(config.image_gc_high_threshold_percent).ok()? {
            return None;
        }
        let low = u128::try_from(config.image_gc_low_threshold_percent).unwrap_or(0).min(100);
        let amount = u64::try_from((capacity * (100 - low) / 100).saturating_sub(available)).unwrap_or(u64::MAX);
        Some(Excess { amount, images: self.eligible(config, now) })
    }

    /// Returns unused images older than `imageMinimumGCAge` with their sizes, least recently used first.
    pub(crate) fn eligible(&self, config: &ImagesConfiguration, now: Timestamp) -> Vec<(String, u64)> {
        let min = signed(config.image_minimum_gc_age);
        let old_enough = |record: &ImageRecord| now.duration_since(record.first_seen) >= min;
        let images = self.unused().into_iter().filter(|(_, record)| old_enough(record));
        images.map(|(id, record)| (id.clone(), record.size)).collect()
    }

    /// Returns the time of the next run: when an image reaches its maximum age, or on a full disk its minimum age.
    pub(crate) fn next_run(&self, config: &ImagesConfiguration, full: bool, now: Timestamp) -> Timestamp {
        let (max, min) = (config.image_maximum_gc_age, config.image_minimum_gc_age);
        let unused = self.unused();
        let old = unused.iter().filter(|_| !max.is_zero()).map(|(_, record)| record.last_used.max(self.started) + max);
        let enough = unused.iter().filter(|_| full).map(|(_, record)| record.first_seen + min).filter(|at| *at > now);
        let due = old.chain(enough).min().unwrap_or(now + PERIOD);
        due.clamp(now + MIN_PERIOD, now + PERIOD)
    }
}

#[cfg(test)]
mod tests;
