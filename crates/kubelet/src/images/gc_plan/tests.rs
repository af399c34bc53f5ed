//! Cases of upstream's `image_gc_manager_test.go`, and of differences from it.

use super::*;

const MIB: u64 = 1 << 20;

fn at(second: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(second)
}

fn config(high: i32, low: i32, min: u64, max: u64) -> ImagesConfiguration {
    ImagesConfiguration {
        image_gc_high_threshold_percent: high,
        image_gc_low_threshold_percent: low,
        image_minimum_gc_age: Duration::from_secs(min),
        image_maximum_gc_age: Duration::from_secs(max),
        ..ImagesConfiguration::default()
    }
}

/// Observes images of 1 MiB; upper-case names are in use.
fn observe(tracker: &mut ImageTracker, names: &str, second: u64) {
    let image =
        |c: char| PresentImage { id: c.to_ascii_lowercase().to_string(), size: MIB, in_use: c.is_ascii_uppercase() };
    tracker.observe(names.chars().map(image).collect(), at(second));
}

fn tracker_with(looks: &[(&str, u64)]) -> ImageTracker {
    let mut tracker = ImageTracker::new(at(0));
    looks.iter().for_each(|(names, second)| observe(&mut tracker, names, *second));
    tracker
}

#[track_caller]
fn above_max_age(looks: &[(&str, u64)], max: u64, second: u64, expected: &str) {
    assert_eq!(tracker_with(looks).above_max_age(&config(85, 80, 0, max), at(second)).concat(), expected);
}

#[test]
fn images_unused_for_the_maximum_age_are_removed() {
    above_max_age(&[("aB", 0)], 10, 10, "");
    above_max_age(&[("aB", 0)], 10, 11, "a");
    above_max_age(&[("aB", 0)], 0, 1000, "");
    // In use until 20 at least, and seen unused at 25: its age counts from then.
    above_max_age(&[("A", 0), ("A", 20), ("a", 25)], 10, 35, "");
    above_max_age(&[("A", 0), ("A", 20), ("a", 25)], 10, 36, "a");
    // The age of an image that was never used counts from when it was first seen.
    above_max_age(&[("", 0), ("a", 100)], 10, 101, "");
    above_max_age(&[("", 0), ("a", 100)], 10, 111, "a");
    // Least recently used first.
    above_max_age(&[("aBC", 0), ("abC", 10), ("abc", 20)], 10, 60, "abc");
}

#[track_caller]
fn excess(looks: &[(&str, u64)], config: &ImagesConfiguration, free: u64, second: u64, expected: Option<(u64, &str)>) {
    let disk = ImageFsUsage { capacity: 100 * MIB, available: free * MIB };
    let found = tracker_with(looks).excess(config, disk, at(second));
    let names = |e: &Excess| e.images.iter().map(|(id, _)| id.as_str()).collect::<String>();
    let found = found.map(|e| (e.amount / MIB, names(&e)));
    assert_eq!(found, expected.map(|(amount, names)| (amount, names.to_owned())));
}

#[test]
fn full_disk_is_freed_to_the_low_threshold() {
    let policy = config(85, 80, 0, 0);
    excess(&[("aB", 0)], &policy, 16, 1, None);
    excess(&[("aB", 0)], &policy, 15, 1, Some((5, "a")));
    excess(&[("aB", 0)], &policy, 0, 1, Some((20, "a")));
    excess(&[("a", 0)], &config(1, 0, 0, 0), 99, 1, Some((1, "a")));
    // 100 disables the collection, unless images are collected by age.
    excess(&[("a", 0)], &config(100, 99, 0, 0), 0, 1, None);
    excess(&[("a", 0)], &config(100, 99, 0, 600), 0, 1, Some((1, "a")));
    // More available than the capacity frees nothing.
    excess(&[("a", 0)], &policy, 200, 1, None);
}

#[test]
fn least_recently_used_images_are_removed_first() {
    let policy = config(85, 80, 0, 0);
    excess(&[("ABC", 0), ("AbC", 10), ("abC", 20), ("abc", 30)], &policy, 15, 40, Some((5, "bac")));
    excess(&[("bB", 0), ("a", 5), ("cab", 9)], &policy, 15, 40, Some((5, "abc")));
    let policy = config(85, 80, 10, 0);
    excess(&[("a", 0), ("ab", 5)], &policy, 15, 9, Some((5, "")));
    excess(&[("a", 0), ("ab", 5)], &policy, 15, 10, Some((5, "a")));
    excess(&[("a", 0), ("ab", 5)], &policy, 15, 15, Some((5, "ab")));
}

#[test]
fn disk_without_capacity_frees_nothing() {
    let disk = ImageFsUsage { capacity: 0, available: 0 };
    assert_eq!(tracker_with(&[("a", 0)]).excess(&config(0, 0, 0, 0), disk, at(1)), None);
}

#[track_caller]
fn next(looks: &[(&str, u64)], min: u64, max: u64, full: bool, now: u64, expected: u64) {
    assert_eq!(tracker_with(looks).next_run(&config(85, 80, min, max), full, at(now)), at(expected));
}

#[test]
fn next_run_is_when_an_image_is_due_or_after_five_minutes() {
    next(&[("aB", 0)], 120, 0, false, 7, 307);
    next(&[("aB", 0)], 0, 100, false, 7, 100);
    next(&[("aB", 0)], 0, 1000, false, 7, 307);
    next(&[("A", 0)], 0, 100, false, 7, 307);
    next(&[("a", 0), ("ab", 5)], 120, 0, true, 7, 120);
    next(&[("a", 0), ("ab", 5)], 120, 0, true, 121, 125);
    // A failed removal is not retried at once.
    next(&[("a", 0)], 0, 10, false, 50, 51);
}

#[test]
fn removed_image_is_forgotten() {
    let mut tracker = tracker_with(&[("ab", 0)]);
    tracker.removed("a");
    observe(&mut tracker, "a", 5);
    assert_eq!(tracker.records.keys().cloned().collect::<String>(), "a");
    assert_eq!(tracker.records["a"].first_seen, at(5));
}
