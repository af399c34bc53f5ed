//! Node-pressure eviction: thresholds, ranking and messages (`pkg/kubelet/eviction`).

use crate::common::{Run, Sim, start};
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{
    Action, Eviction, NodePressure, PodLifecycleEvent,
    eviction::{
        ContainerUsage, DiskUsage, EvictionCandidate, EvictionManager, EvictionPolicy, MetThreshold, PodUsage, Signal,
        SignalObservation, SignalObservations, Threshold, ThresholdValue, has_local_storage_limits, is_reclaimed,
        local_storage_eviction, select_victim,
    },
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

const MIB: i64 = 1 << 20;

fn hard(signal: Signal, level: &str) -> Threshold {
    let level = match level.strip_suffix('%') {
        Some(percent) => ThresholdValue::Share(percent.parse::<f64>().unwrap() / 100.0),
        None => ThresholdValue::quantity(level).unwrap(),
    };
    Threshold { signal, level, grace: Duration::ZERO, min_reclaim: None }
}

fn soft(signal: Signal, level: &str, grace: u64) -> Threshold {
    Threshold { grace: Duration::from_secs(grace), ..hard(signal, level) }
}

fn policy(thresholds: &[Threshold]) -> EvictionPolicy {
    let thresholds = thresholds.to_vec();
    EvictionPolicy { thresholds, transition_period: Duration::from_secs(300), max_pod_grace_seconds: Some(60) }
}

fn observations(signals: &[(Signal, i64, i64)]) -> SignalObservations {
    signals
        .iter()
        .map(|(signal, available, capacity)| {
            (*signal, SignalObservation { available: *available, capacity: *capacity })
        })
        .collect()
}

/// Asserts pressure conditions and met thresholds over time, given the available MiB of 1000 MiB memory.
#[track_caller]
fn check(policy: &EvictionPolicy, steps: &[(u64, i64, &[NodePressure], bool)]) {
    let mut watch = EvictionManager::default();
    for (at, available, pressures, evicts) in steps {
        let observed = observations(&[(Signal::MemoryAvailable, available * MIB, 1000 * MIB)]);
        let met_threshold = watch.observe(policy, &observed, start() + Duration::from_secs(*at));
        assert_eq!((watch.pressures(), met_threshold.is_some()), (*pressures, *evicts), "after {at} s");
    }
}

const MEMORY: &[NodePressure] = &[NodePressure::Memory];

#[test]
fn hard_threshold_is_met_at_once_and_pressure_persists() {
    let policy = policy(&[hard(Signal::MemoryAvailable, "100Mi")]);
    let steps: &[(u64, i64, &[NodePressure], bool)] = &[
        (0, 100, &[], false),
        (10, 99, MEMORY, true),
        (20, 50, MEMORY, true),
        (30, 100, MEMORY, false),
        (319, 100, MEMORY, false),
        (320, 100, &[], false),
    ];
    check(&policy, steps);
}

#[test]
fn soft_threshold_is_met_after_uninterrupted_grace_period() {
    let policy = policy(&[soft(Signal::MemoryAvailable, "10%", 30)]);
    let steps: &[(u64, i64, &[NodePressure], bool)] = &[
        (0, 99, MEMORY, false),
        (20, 99, MEMORY, false),
        (25, 100, MEMORY, false),
        (30, 99, MEMORY, false),
        (59, 99, MEMORY, false),
        (60, 99, MEMORY, true),
    ];
    check(&policy, steps);
}

#[test]
fn threshold_is_met_until_minimum_reclaim_is_reached() {
    let mut one = hard(Signal::MemoryAvailable, "100Mi");
    one.min_reclaim = Some(ThresholdValue::quantity("50Mi").unwrap());
    let steps: &[(u64, i64, &[NodePressure], bool)] = &[
        (0, 120, &[], false),
        (10, 99, MEMORY, true),
        (20, 149, MEMORY, true),
        (30, 150, MEMORY, false),
        (40, 120, MEMORY, false),
    ];
    check(&policy(&[one]), steps);
}

#[test]
fn pressure_clears_at_once_without_transition_period() {
    let policy =
        EvictionPolicy { transition_period: Duration::ZERO, ..policy(&[hard(Signal::MemoryAvailable, "100Mi")]) };
    check(&policy, &[(0, 99, MEMORY, true), (10, 100, &[], false)]);
}

#[test]
fn memory_threshold_comes_first_and_unknown_signal_is_ignored() {
    let policy = policy(&[
        hard(Signal::NodeFsAvailable, "10%"),
        hard(Signal::ImageFsInodesFree, "5%"),
        hard(Signal::PidAvailable, "10"),
        hard(Signal::AllocatableMemoryAvailable, "100Mi"),
    ]);
    let observe = |signals: &[(Signal, i64, i64)]| {
        let mut watch = EvictionManager::default();
        let met_threshold = watch.observe(&policy, &observations(signals), start());
        (met_threshold.map(|s| s.resource()), watch.pressures().to_vec())
    };
    let (disk, memory) = ((Signal::NodeFsAvailable, 9, 100), (Signal::AllocatableMemoryAvailable, 9, 1000 * MIB));
    assert_eq!(observe(&[disk, memory]), (Some("memory"), vec![NodePressure::Disk, NodePressure::Memory]));
    assert_eq!(observe(&[disk]), (Some("ephemeral-storage"), vec![NodePressure::Disk]));
    assert_eq!(observe(&[(Signal::ImageFsInodesFree, 4, 100)]), (Some("inodes"), vec![NodePressure::Disk]));
    assert_eq!(observe(&[(Signal::PidAvailable, 9, 100)]), (Some("pids"), vec![NodePressure::Pid]));
    assert_eq!(observe(&[]), (None, vec![]));
}

fn met_threshold(threshold: &Threshold, available: i64, capacity: i64) -> MetThreshold {
    let observed = observations(&[(threshold.signal, available, capacity)]);
    EvictionManager::default()
        .observe(&policy(std::slice::from_ref(threshold)), &observed, start() + Duration::from_secs(1))
        .unwrap()
}

fn pod(name: &str, priority: i32, request: &Value, grace: Option<i64>) -> Arc<Pod> {
    let spec = json!({"priority": priority, "terminationGracePeriodSeconds": grace,
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}],
        "containers": [{"name": "c", "resources": {"requests": request}}]});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
}

fn disk(bytes: i64, inodes: i64) -> DiskUsage {
    DiskUsage { bytes, inodes }
}

fn uses_memory(mib: i64) -> PodUsage {
    let container = ContainerUsage { name: "c".to_owned(), memory: Some(mib * MIB), ..Default::default() };
    PodUsage { memory: Some(mib * MIB), processes: Some(mib), containers: vec![container], ..Default::default() }
}

/// Pod: name, priority, memory request, memory usage (MiB).
type Row = (&'static str, i32, &'static str, i64);

/// Asserts the order of eviction.
#[track_caller]
fn check_ranking(signal: Signal, rows: &[Row], expected: &[&str]) {
    let met_threshold = met_threshold(&hard(signal, "1000"), 999, 10_000);
    let mut remaining: Vec<EvictionCandidate> = rows
        .iter()
        .map(|(name, priority, request, used)| EvictionCandidate {
            pod: pod(name, *priority, &json!({"memory": request}), None),
            usage: (*used >= 0).then(|| uses_memory(*used)),
        })
        .collect();
    let mut order = Vec::new();
    while let Some((first, _)) = select_victim(&met_threshold, &remaining, false) {
        let name = first.pod.metadata.name.clone().unwrap();
        remaining.retain(|c| c.pod.metadata.name.as_ref() != Some(&name));
        order.push(name);
    }
    assert_eq!(order, expected);
}

#[test]
fn eviction_ranks_by_request_excess_then_priority_then_usage() {
    let rows: &[Row] = &[
        ("within", 0, "100Mi", 90),
        ("exact", -5, "100Mi", 100),
        ("over", 0, "100Mi", 110),
        ("far-over", 0, "10Mi", 105),
        ("important", 10, "0", 500),
        ("best-effort", 0, "0", 50),
        ("unseen", 1000, "0", -1),
        ("system", 2_000_000_000, "0", 900),
    ];
    check_ranking(
        Signal::MemoryAvailable,
        rows,
        &["unseen", "far-over", "best-effort", "over", "important", "exact", "within"],
    );
    // The process id ranking considers only priority and number.
    let rows: &[Row] = &[("few", 0, "0", 5), ("many", 0, "0", 50), ("important", 1, "0", 500)];
    check_ranking(Signal::PidAvailable, rows, &["many", "few", "important"]);
}

#[test]
fn static_pod_is_never_evicted() {
    let mut fixed = Pod::clone(&pod("p", 0, &json!({}), None));
    fixed.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    let candidates = [EvictionCandidate { pod: Arc::new(fixed), usage: Some(uses_memory(1)) }];
    assert!(select_victim(&met_threshold(&hard(Signal::MemoryAvailable, "100Mi"), 1, 2), &candidates, false).is_none());
}

#[test]
fn disk_eviction_ranks_by_usage_on_the_full_disk() {
    // Each Pod uses 100 of one kind of storage.
    let candidates: Vec<EvictionCandidate> = ["rootfs", "logs", "volume", "memory-volume"]
        .iter()
        .map(|name| {
            let some = |volume: &str| Some(if *name == volume { disk(100, 100) } else { disk(1, 1) });
            let (rootfs, logs) = (some("rootfs"), some("logs"));
            let container = ContainerUsage { name: "c".to_owned(), memory: None, rootfs, logs };
            let volumes =
                [("v", "volume"), ("m", "memory-volume")].map(|(v, volume)| (v.to_owned(), some(volume).unwrap()));
            let usage = PodUsage { containers: vec![container], volumes: volumes.into(), ..Default::default() };
            EvictionCandidate { pod: pod(name, 0, &json!({}), None), usage: Some(usage) }
        })
        .collect();
    let first = |signal: Signal, split: bool, without: &str| {
        let kept: Vec<EvictionCandidate> =
            candidates.iter().filter(|c| c.pod.metadata.name.as_deref() != Some(without)).cloned().collect();
        let met_threshold = met_threshold(&hard(signal, "10%"), 1, 100);
        select_victim(&met_threshold, &kept, split).unwrap().0.pod.metadata.name.clone().unwrap()
    };
    assert_eq!(first(Signal::NodeFsAvailable, true, ""), "logs");
    assert_eq!(first(Signal::NodeFsAvailable, true, "logs"), "volume");
    assert_eq!(first(Signal::ImageFsAvailable, true, ""), "rootfs");
    assert_eq!(first(Signal::ImageFsInodesFree, true, ""), "rootfs");
    assert_eq!(first(Signal::NodeFsInodesFree, false, ""), "rootfs");
    assert_eq!(first(Signal::NodeFsAvailable, false, "rootfs"), "logs");
}

#[track_caller]
fn check_message(threshold: &Threshold, available: i64, request: &Value, usage: Option<PodUsage>, expected: &str) {
    let candidates = [EvictionCandidate { pod: pod("p", 0, request, None), usage }];
    let met_threshold = met_threshold(threshold, available, 1000 * MIB);
    assert_eq!(select_victim(&met_threshold, &candidates, false).unwrap().1.message, expected);
}

#[test]
fn eviction_message_names_resource_and_containers() {
    let memory = hard(Signal::MemoryAvailable, "100Mi");
    check_message(
        &memory,
        52 * MIB,
        &json!({"memory": "64Mi"}),
        Some(uses_memory(80)),
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. Container c was using 80Mi, request is 64Mi, has larger consumption of memory. ",
    );
    let low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 53249Ki. ";
    check_message(&memory, 52 * MIB + 1024, &json!({"memory": "64Mi"}), Some(uses_memory(64)), low);
    check_message(&memory, 52 * MIB + 1024, &json!({}), None, low);
    check_message(
        &memory,
        MIB,
        &json!({}),
        Some(uses_memory(1)),
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi. Container c was using 1Mi, request is 0, has larger consumption of memory. ",
    );
    let mut on_disk = uses_memory(1);
    on_disk.containers[0].rootfs = Some(disk(3 << 10, 1));
    on_disk.containers[0].logs = Some(disk(1 << 10, 1));
    check_message(
        &hard(Signal::NodeFsAvailable, "10%"),
        99 * MIB,
        &json!({"ephemeral-storage": "1k"}),
        Some(on_disk),
        "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 99Mi. Container c was using 4Ki, request is 1k, has larger consumption of ephemeral-storage. ",
    );
    check_message(
        &hard(Signal::NodeFsInodesFree, "2k"),
        1999,
        &json!({}),
        Some(uses_memory(1)),
        "The node was low on resource: inodes. Threshold quantity: 2k, available: 1999. ",
    );
}

#[test]
fn eviction_event_annotations_name_offending_containers() {
    let annotations_of = |usage: Option<PodUsage>| {
        let candidates = [EvictionCandidate { pod: pod("p", 0, &json!({"memory": "64Mi"}), None), usage }];
        let met_threshold = met_threshold(&hard(Signal::MemoryAvailable, "100Mi"), 52 * MIB, 1000 * MIB);
        json!(select_victim(&met_threshold, &candidates, false).unwrap().1.annotations)
    };
    let annotations = |containers: &str, usage: &str| json!({"starved_resource": "memory", "offending_containers": containers, "offending_containers_usage": usage});
    assert_eq!(annotations_of(Some(uses_memory(80))), annotations("c", "80Mi"));
    assert_eq!(annotations_of(Some(uses_memory(64))), annotations("", ""));
    assert_eq!(annotations_of(None), json!({}));
}

#[test]
fn eviction_grace_is_1s_for_hard_and_configured_for_soft() {
    let grace = |threshold: &Threshold, max: Option<u32>, grace_period: Option<i64>| {
        let observed = observations(&[(threshold.signal, 1, 2)]);
        let policy = EvictionPolicy { max_pod_grace_seconds: max, ..policy(std::slice::from_ref(threshold)) };
        let mut watch = EvictionManager::default();
        watch.observe(&policy, &observed, start());
        let met_threshold = watch.observe(&policy, &observed, start() + Duration::from_secs(60)).unwrap();
        let candidates = [EvictionCandidate { pod: pod("p", 0, &json!({}), grace_period), usage: None }];
        let eviction = select_victim(&met_threshold, &candidates, false).unwrap().1;
        assert_eq!((eviction.reason.as_str(), eviction.disruption_target), ("Evicted", true));
        eviction.grace_seconds
    };
    let (hard, soft) = (hard(Signal::MemoryAvailable, "1Mi"), soft(Signal::MemoryAvailable, "1Mi", 30));
    assert_eq!(grace(&hard, Some(60), Some(30)), Some(1));
    assert_eq!(grace(&soft, Some(60), Some(30)), Some(30));
    assert_eq!(grace(&soft, Some(10), Some(30)), Some(10));
    assert_eq!(grace(&soft, Some(0), Some(30)), Some(1));
    assert_eq!(grace(&soft, None, Some(30)), None);
}

/// Returns the local storage eviction of a Pod whose container and volume use so many KiB.
fn local_storage(spec: &Value, written: i64, in_volume: i64, split: bool) -> Option<Eviction> {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
    let container = ContainerUsage {
        name: "c".to_owned(),
        rootfs: Some(disk(written << 10, 1)),
        logs: Some(disk(1 << 10, 1)),
        memory: None,
    };
    let volumes = [("v".to_owned(), disk(in_volume << 10, 1))].into();
    local_storage_eviction(&pod, &PodUsage { containers: vec![container], volumes, ..Default::default() }, split)
}

#[track_caller]
fn check_local_storage(spec: &Value, written: i64, in_volume: i64, expected: Option<&str>) {
    assert_eq!(local_storage(spec, written, in_volume, false).map(|e| e.message).as_deref(), expected);
}

#[test]
fn pod_over_its_local_storage_limit_is_evicted() {
    let sized = |limit: &str| json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": limit}}], "containers": [{"name": "c"}]});
    check_local_storage(&sized("1Mi"), 0, 1024, None);
    check_local_storage(&sized("1024Ki"), 0, 1025, Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "));
    check_local_storage(&sized("0"), 0, 1025, None);
    let limits = |limits: &[&str]| {
        let names = ["c", "d"];
        let containers: Vec<Value> = limits
            .iter()
            .zip(names)
            .map(|(limit, name)| json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}}))
            .collect();
        json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": containers})
    };
    let whole = "Pod ephemeral local storage usage exceeds the total limit of containers 10Ki. ";
    check_local_storage(&limits(&["10Ki"]), 4, 5, None);
    check_local_storage(&limits(&["10Ki"]), 4, 6, Some(whole));
    check_local_storage(&limits(&["5Ki", "15Ki"]), 3, 6, None);
    let message = "Container c exceeded its local ephemeral storage limit \"5Ki\". ";
    check_local_storage(&limits(&["5Ki", "15Ki"]), 5, 6, Some(message));
    let decimal = "Pod ephemeral local storage usage exceeds the total limit of containers 3k. ";
    check_local_storage(&limits(&["1k", "2k"]), 9, 9, Some(decimal));
    // The writable layer is on the other file system.
    assert_eq!(local_storage(&limits(&["5Ki"]), 100, 1, true), None);
    let eviction = local_storage(&sized("1Ki"), 0, 2, false).unwrap();
    assert_eq!((eviction.grace_seconds, eviction.disruption_target), (Some(1), false));
    let mut critical = sized("1Ki");
    critical["priority"] = json!(2_000_000_000);
    assert_eq!(local_storage(&critical, 0, 2, false), None);
}

#[test]
fn pod_has_local_storage_limits_if_any_is_set() {
    for (spec, expected) in [
        (json!({"containers": [{"name": "c"}], "volumes": [{"name": "v", "emptyDir": {}}]}), false),
        (json!({"containers": [{"name": "c"}], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]}), true),
        (json!({"containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "1Mi"}}}]}), true),
        (json!({"containers": [{"name": "c", "resources": {"limits": {"memory": "1Mi"}}}]}), false),
    ] {
        assert_eq!(has_local_storage_limits(&serde_json::from_value(spec.clone()).unwrap()), expected, "{spec}");
    }
}

#[test]
fn unused_data_is_reclaimed_first_on_the_full_disk() {
    for (signal, with_images, with_split_disks) in [
        (Signal::NodeFsAvailable, true, false),
        (Signal::NodeFsInodesFree, true, false),
        (Signal::ImageFsAvailable, true, true),
        (Signal::ImageFsInodesFree, true, true),
        (Signal::MemoryAvailable, false, false),
        (Signal::PidAvailable, false, false),
    ] {
        let observed = observations(&[(signal, 1, 100)]);
        let met_threshold =
            EvictionManager::default().observe(&policy(&[hard(signal, "10%")]), &observed, start()).unwrap();
        assert_eq!(
            (met_threshold.reclaims_unused_first(false), met_threshold.reclaims_unused_first(true)),
            (with_images, with_split_disks),
            "{signal:?}"
        );
    }
}

#[test]
fn reclaim_is_enough_above_thresholds_plus_minimum_reclaim() {
    let mut disk = hard(Signal::NodeFsAvailable, "10");
    disk.min_reclaim = Some(ThresholdValue::quantity("5").unwrap());
    let policy = policy(&[disk, soft(Signal::MemoryAvailable, "10%", 30)]);
    for (available, memory, expected) in
        [(9, 50, false), (14, 50, false), (15, 50, true), (15, 9, false), (15, 10, true)]
    {
        let observed =
            observations(&[(Signal::NodeFsAvailable, available, 100), (Signal::MemoryAvailable, memory, 100)]);
        assert_eq!(is_reclaimed(&policy, &observed), expected, "{available} {memory}");
    }
}

#[test]
fn disk_full_removes_containers_of_terminated_pods() {
    let removed = |sim: &Sim| sim.log.iter().filter(|(_, a)| matches!(a, Action::RemoveContainer { .. })).count();
    let mut alive = Sim::of("Always", &["c"]);
    alive.pass(10);
    alive.observe(PodLifecycleEvent::DiskFull);
    alive.pass(10);
    assert_eq!((removed(&alive), alive.pod.keeps_dead_containers()), (0, false));
    let mut ended = Sim::of("Never", &["c"]).script("c", &[Run::Ends(1, 3)]);
    ended.pass(10);
    let before = ended.status();
    assert_eq!((removed(&ended), ended.pod.keeps_dead_containers()), (0, true));
    ended.observe(PodLifecycleEvent::DiskFull);
    ended.pass(10);
    ended.observe(PodLifecycleEvent::DiskFull);
    ended.pass(10);
    assert_eq!((removed(&ended), ended.pod.keeps_dead_containers()), (1, false));
    assert_eq!(ended.status(), before, "the status is kept");
}
