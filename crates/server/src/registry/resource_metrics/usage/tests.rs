use super::*;

/// Returns the time in milliseconds after the start of the test.
fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_000_000_000_000 + millis).unwrap()
}

fn sample(millis: i64) -> Sample {
    Sample { at: at(millis), node: None, pods: BTreeMap::new() }
}

/// A point of a container, as `at started cpu memory`: times and CPU time in milliseconds, `-` for an unknown start.
fn point(text: &str) -> Point {
    let words: Vec<&str> = text.split(' ').collect();
    let [moment, started, cpu, memory] = words.as_slice() else { panic!("{text}") };
    Point {
        at: at(moment.parse().unwrap()),
        started: started.parse().ok().map(at),
        cpu: cpu.parse::<u64>().unwrap() * 1_000_000,
        memory: memory.parse().unwrap(),
    }
}

/// Returns the samples of a node at these times.
fn samples(times: &[i64]) -> NodeSamples {
    let mut samples = NodeSamples::default();
    times.iter().for_each(|time| samples.add(sample(*time)));
    samples
}

fn sample_times(samples: &NodeSamples) -> Vec<i64> {
    samples.samples.iter().map(|s| s.at.as_millisecond() - 1_000_000_000_000).collect()
}

#[track_caller]
fn check_step(times: &[i64], now: i64, expected: &str) {
    let step = match samples(times).next_step(at(now)) {
        NextStep::Done(pair) => format!("compare {}", pair.last.at.duration_since(pair.base.at).as_millis()),
        NextStep::Sample => "sample".to_owned(),
        NextStep::Wait(time) => format!("wait {}", time.as_millis()),
        NextStep::Failed => "failed".to_owned(),
    };
    assert_eq!(step, expected, "{times:?} at {now}");
}

#[test]
fn base_sample_is_nearest_to_preferred_window() {
    check_step(&[], 0, "sample");
    check_step(&[0], 0, "wait 1000");
    check_step(&[0], 400, "wait 600");
    check_step(&[0], 1_000, "sample");
    check_step(&[0, 1_000], 1_000, "compare 1000");
    check_step(&[0, 1_000], 1_999, "compare 1000");
    check_step(&[0, 1_000], 2_000, "sample");
    check_step(&[0, 999], 999, "wait 1000");
    check_step(&[0, 5_000, 10_000, 20_000], 20_000, "compare 15000");
    check_step(&[0, 14_000], 14_000, "compare 14000");
    check_step(&[0, 60_000], 60_000, "compare 60000");
    check_step(&[0, 120_000], 120_000, "compare 120000");
    // Too old to be compared with.
    check_step(&[0, 120_001], 120_001, "wait 1000");
    // The clock was set back.
    check_step(&[50_000], 0, "sample");
    check_step(&[50_000, 0], 0, "wait 1000");
}

#[test]
fn failed_scrape_is_retried_after_a_second() {
    let mut samples = samples(&[0, 5_000]);
    samples.failed(at(8_000));
    assert!(matches!(samples.next_step(at(8_500)), NextStep::Failed));
    assert!(matches!(samples.next_step(at(9_000)), NextStep::Sample));
    samples.add(sample(9_000));
    assert!(matches!(samples.next_step(at(9_000)), NextStep::Done(_)));
}

#[test]
fn samples_that_cannot_be_a_base_are_dropped() {
    let each_second: Vec<i64> = (0..60).map(|s| s * 1_000).collect();
    assert_eq!(sample_times(&samples(&each_second)), each_second[44..]);
    assert_eq!(sample_times(&samples(&[0, 15_000, 30_000, 45_000])), [30_000, 45_000]);
    assert_eq!(sample_times(&samples(&[0, 10_000, 200_000])), [200_000]);
}

/// Compares the usage of a container between its points in the base sample (at 0) and in the last one.
#[track_caller]
fn check_container(before: &str, now: &str, expected: &str) {
    let key = ("n".to_owned(), "p".to_owned());
    let with = |moment: i64, text: &str| {
        let containers = (!text.is_empty()).then(|| (key.clone(), Containers::from([("c".to_owned(), point(text))])));
        Arc::new(Sample { pods: containers.into_iter().collect(), ..sample(moment) })
    };
    let pair = SamplePair { base: with(0, before), last: with(10_000, now) };
    let got = pair.pod("n", "p").map_or_else(String::new, |all| {
        let usage = all["c"];
        format!("{} {} {}", usage.window.as_millis(), usage.cpu, usage.memory)
    });
    assert_eq!(got, expected, "{before:?} to {now:?}");
}

#[test]
fn container_usage_is_the_growth_of_its_counter() {
    check_container("0 -5000 100 7", "10000 -5000 5100 8", "10000 500000000 8");
    check_container("0 - 100 7", "10000 - 100 8", "10000 0 8");
    // The window is that of the points, not of the samples.
    check_container("-2000 -5000 100 7", "8000 -5000 10100 8", "10000 1000000000 8");
    // It was not measured again.
    check_container("0 -5000 100 7", "0 -5000 100 7", "");
}

#[test]
fn container_started_in_window_counts_from_its_start() {
    check_container("", "10000 6000 2000 8", "4000 500000000 8");
    // Started again.
    check_container("0 -5000 9000 7", "10000 6000 2000 8", "4000 500000000 8");
    // Known a little later than it was started.
    check_container("", "10000 -500 2100 8", "10500 200000000 8");
    // Too young, or the start time is unknown.
    check_container("", "10000 9500 400 8", "");
    check_container("", "10000 -5000 400 8", "");
    check_container("", "10000 - 400 8", "");
}

#[test]
fn decreased_counter_has_no_usage() {
    check_container("0 -5000 9000 7", "10000 -5000 2000 8", "");
    check_container("0 - 9000 7", "10000 - 2000 8", "");
    check_container("12000 -5000 100 7", "10000 -5000 200 8", "");
}

#[test]
fn pod_needs_all_containers_except_decreased_counters() {
    let key = ("n".to_owned(), "p".to_owned());
    let with = |moment: i64, all: &[(&str, &str)]| {
        let containers = all.iter().map(|(name, text)| ((*name).to_owned(), point(text))).collect();
        Arc::new(Sample { pods: BTreeMap::from([(key.clone(), containers)]), ..sample(moment) })
    };
    let names = |before: &[(&str, &str)], now: &[(&str, &str)]| {
        let pair = SamplePair { base: with(0, before), last: with(10_000, now) };
        pair.pod("n", "p").map(|all| all.into_keys().map(str::to_owned).collect::<Vec<_>>().join(" "))
    };
    let (a, later) = (("a", "0 -5000 100 7"), ("a", "10000 -5000 200 7"));
    assert_eq!(names(&[a], &[later]).as_deref(), Some("a"));
    assert_eq!(names(&[a], &[later, ("b", "10000 -5000 200 7")]), None);
    assert_eq!(names(&[a, ("b", "0 - 900 7")], &[later, ("b", "10000 - 200 7")]).as_deref(), Some("a"));
    // One that has ended is not missed.
    assert_eq!(names(&[a, ("b", "0 -5000 900 7")], &[later]).as_deref(), Some("a"));
}

#[test]
fn node_usage_is_the_growth_of_its_counter() {
    let with = |moment: i64, cpu: u64| {
        let node = Point { at: at(moment), started: None, cpu, memory: 9 };
        Arc::new(Sample { node: Some(node), ..sample(moment) })
    };
    let usage = SamplePair { base: with(0, 5), last: with(2_000, 3_000_000_005) }.node().unwrap();
    assert_eq!((usage.cpu, usage.memory, usage.window.as_millis()), (1_500_000_000, 9, 2_000));
    assert_eq!(SamplePair { base: with(0, 5), last: with(2_000, 4) }.node(), None);
    assert_eq!(SamplePair { base: Arc::new(sample(0)), last: with(2_000, 4) }.node(), None);
}
