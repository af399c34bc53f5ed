//! Property tests of evictions.

use crate::common::start;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{
    NodePressure,
    eviction::{
        EvictionCandidate, EvictionManager, EvictionPolicy, PodUsage, Signal, SignalObservation, Threshold,
        ThresholdValue, select_victim,
    },
};
use proptest::{collection::vec, prelude::*};
use serde_json::json;
use std::{sync::Arc, time::Duration};

const CAPACITY: i64 = 1000;
const THRESHOLD: i64 = 100;
const RECLAIM: i64 = 50;
const TRANSITION: u64 = 60;

fn policy(grace: u64) -> EvictionPolicy {
    let quantity = |n: i64| ThresholdValue::quantity(&n.to_string()).unwrap();
    let (signal, grace) = (Signal::MemoryAvailable, Duration::from_secs(grace));
    let threshold = Threshold { signal, level: quantity(THRESHOLD), grace, min_reclaim: Some(quantity(RECLAIM)) };
    let transition_period = Duration::from_secs(TRANSITION);
    EvictionPolicy { thresholds: vec![threshold], transition_period, max_pod_grace_seconds: None }
}

/// Priority, request and usage of a Pod.
type Row = (i32, i64, i64);

fn candidate((priority, request, used): Row) -> EvictionCandidate {
    let containers = json!([{"name": "c", "resources": {"requests": {"memory": request.to_string()}}}]);
    let pod: Pod = serde_json::from_value(json!({"spec": {"priority": priority, "containers": containers}})).unwrap();
    EvictionCandidate { pod: Arc::new(pod), usage: Some(PodUsage { memory: Some(used), ..PodUsage::default() }) }
}

fn row(candidate: &EvictionCandidate) -> Row {
    let spec = candidate.pod.spec.as_ref().unwrap();
    let request = api::resources::pod_resources(spec, api::resources::ResourceField::Requests)["memory"].value();
    (spec.priority.unwrap(), request, candidate.usage.as_ref().unwrap().memory.unwrap())
}

proptest! {
    #[test]
    fn eviction_victim_has_the_highest_rank(rows in vec((-2..3_i32, 0..5_i64, 0..9_i64), 0..8)) {
        let mut watch = EvictionManager::default();
        let observed = [(Signal::MemoryAvailable, SignalObservation { available: 1, capacity: CAPACITY })].into();
        let met_threshold = watch.observe(&policy(0), &observed, start()).unwrap();
        let candidates: Vec<EvictionCandidate> = rows.iter().copied().map(candidate).collect();
        let Some((chosen, _)) = select_victim(&met_threshold, &candidates, false) else {
            prop_assert!(rows.is_empty());
            return Ok(());
        };
        let (priority, request, used) = row(chosen);
        let exceeds = used > request;
        for (other_priority, other_request, other_used) in rows {
            let other_exceeds = other_used > other_request;
            prop_assert!(exceeds || !other_exceeds, "a Pod within its request is evicted before one that exceeds it");
            if exceeds == other_exceeds {
                prop_assert!(priority <= other_priority);
                prop_assert!(priority < other_priority || used - request >= other_used - other_request);
            }
        }
    }

    #[test]
    fn pressure_and_evictions_follow_the_observations(
        grace in prop_oneof![Just(0_u64), Just(30)],
        steps in vec((1..50_u64, 0..200_i64), 1..40),
    ) {
        let (policy, mut watch, mut now) = (policy(grace), EvictionManager::default(), start());
        // Start of the current breach; time of the last breach; whether the threshold was met and is not resolved.
        let (mut since, mut last, mut unresolved) = (None, None, false);
        for (pause, available) in steps {
            now += Duration::from_secs(pause);
            let is_met = available < THRESHOLD || unresolved && available < THRESHOLD + RECLAIM;
            since = is_met.then(|| since.unwrap_or(now));
            last = if is_met { Some(now) } else { last };
            let elapsed = |at: jiff::Timestamp| Duration::try_from(now.duration_since(at)).unwrap();
            unresolved = since.is_some_and(|at| elapsed(at) >= policy.thresholds[0].grace);
            let has_pressure = last.is_some_and(|at| at == now || elapsed(at) < policy.transition_period);
            let observations = [(Signal::MemoryAvailable, SignalObservation { available, capacity: CAPACITY })].into();
            let met_threshold = watch.observe(&policy, &observations, now);
            prop_assert_eq!(met_threshold.is_some(), unresolved);
            prop_assert_eq!(watch.pressures(), if has_pressure { &[NodePressure::Memory][..] } else { &[] });
        }
    }
}
