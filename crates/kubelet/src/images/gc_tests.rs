//! Tables of upstream's `image_gc_manager_test.go`, and what Podium does otherwise.

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

/// Images of 1 MiB: those in capitals are in use.
fn see(collector: &mut Collector, names: &str, second: u64) {
    let image = |c: char| Present { id: c.to_ascii_lowercase().to_string(), size: MIB, in_use: c.is_ascii_uppercase() };
    collector.see(names.chars().map(image).collect(), at(second));
}

fn collector(looks: &[(&str, u64)]) -> Collector {
    let mut collector = Collector::new(at(0));
    looks.iter().for_each(|(names, second)| see(&mut collector, names, *second));
    collector
}

#[track_caller]
fn too_old(looks: &[(&str, u64)], max: u64, second: u64, expected: &str) {
    assert_eq!(collector(looks).too_old(&config(85, 80, 0, max), at(second)).concat(), expected);
}

#[test]
fn images_that_nobody_uses_for_too_long_go() {
    too_old(&[("aB", 0)], 10, 10, "");
    too_old(&[("aB", 0)], 10, 11, "a");
    too_old(&[("aB", 0)], 0, 1000, "");
    // Used until 20 at least, and seen unused at 25: it counts from then.
    too_old(&[("A", 0), ("A", 20), ("a", 25)], 10, 35, "");
    too_old(&[("A", 0), ("A", 20), ("a", 25)], 10, 36, "a");
    // One that came late and was not used yet counts from when it came.
    too_old(&[("", 0), ("a", 100)], 10, 101, "");
    too_old(&[("", 0), ("a", 100)], 10, 111, "a");
    // The longest unused goes first.
    too_old(&[("aBC", 0), ("abC", 10), ("abc", 20)], 10, 60, "abc");
}

#[track_caller]
fn excess(looks: &[(&str, u64)], config: &ImagesConfiguration, free: u64, second: u64, expected: Option<(u64, &str)>) {
    let disk = Disk { capacity: 100 * MIB, available: free * MIB };
    let found = collector(looks).excess(config, disk, at(second));
    let names = |e: &Excess| e.images.iter().map(|(id, _)| id.as_str()).collect::<String>();
    let found = found.map(|e| (e.amount / MIB, names(&e)));
    assert_eq!(found, expected.map(|(amount, names)| (amount, names.to_owned())));
}

#[test]
fn a_disk_that_is_too_full_is_freed_down_to_the_lower_threshold() {
    let policy = config(85, 80, 0, 0);
    excess(&[("aB", 0)], &policy, 16, 1, None);
    excess(&[("aB", 0)], &policy, 15, 1, Some((5, "a")));
    excess(&[("aB", 0)], &policy, 0, 1, Some((20, "a")));
    excess(&[("a", 0)], &config(1, 0, 0, 0), 99, 1, Some((1, "a")));
    excess(&[("a", 0)], &config(100, 99, 0, 0), 0, 1, Some((1, "a")));
    // More than there is room for is no reason to free anything.
    excess(&[("a", 0)], &policy, 200, 1, None);
}

#[test]
fn the_longest_unused_images_go_first_and_new_ones_stay() {
    let policy = config(85, 80, 0, 0);
    excess(&[("ABC", 0), ("AbC", 10), ("abC", 20), ("abc", 30)], &policy, 15, 40, Some((5, "bac")));
    excess(&[("bB", 0), ("a", 5), ("cab", 9)], &policy, 15, 40, Some((5, "abc")));
    let policy = config(85, 80, 10, 0);
    excess(&[("a", 0), ("ab", 5)], &policy, 15, 9, Some((5, "")));
    excess(&[("a", 0), ("ab", 5)], &policy, 15, 10, Some((5, "a")));
    excess(&[("a", 0), ("ab", 5)], &policy, 15, 15, Some((5, "ab")));
}

#[test]
fn a_disk_without_a_size_frees_nothing() {
    let disk = Disk { capacity: 0, available: 0 };
    assert_eq!(collector(&[("a", 0)]).excess(&config(0, 0, 0, 0), disk, at(1)), None);
}

#[track_caller]
fn next(looks: &[(&str, u64)], min: u64, max: u64, full: bool, now: u64, expected: u64) {
    assert_eq!(collector(looks).next(&config(85, 80, min, max), full, at(now)), at(expected));
}

#[test]
fn one_looks_again_when_something_falls_due_and_at_least_every_five_minutes() {
    next(&[("aB", 0)], 120, 0, false, 7, 307);
    next(&[("aB", 0)], 0, 100, false, 7, 100);
    next(&[("aB", 0)], 0, 1000, false, 7, 307);
    next(&[("A", 0)], 0, 100, false, 7, 307);
    next(&[("a", 0), ("ab", 5)], 120, 0, true, 7, 120);
    next(&[("a", 0), ("ab", 5)], 120, 0, true, 121, 125);
    // What could not be removed is not tried again at once.
    next(&[("a", 0)], 0, 10, false, 50, 51);
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut collector = collector(&[("ab", 0)]);
    collector.removed("a");
    see(&mut collector, "a", 5);
    assert_eq!(collector.records.keys().cloned().collect::<String>(), "a");
    assert_eq!(collector.records["a"].first_seen, at(5));
}
