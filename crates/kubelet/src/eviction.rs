//! Node-pressure eviction: observes the eviction signals and evicts the Pods that `lifecycle::eviction` selects.

use crate::{Shared, blocking, images::gc, pod_stats, pod_worker::PodMessage, pods, system_stats::SystemStats};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use lifecycle::{
    EventKind, Eviction, NodePressure, Pod, PodLifecycleEvent,
    eviction::{
        EvictionCandidate, EvictionManager, EvictionPolicy, MetThreshold, SignalObservations, has_local_storage_limits,
        is_reclaimed, local_storage_eviction, select_victim,
    },
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Interval of the eviction monitor (upstream's `evictionMonitoringPeriod`).
const MONITORING_PERIOD: Duration = Duration::from_secs(10);
/// Disk usage is measured at most 1/`SHARE` of the time, and at least every `LONGEST_REST` (upstream's
/// `volumeStatsAggPeriod`).
const SHARE: u32 = 100;
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Time limit to wait for an evicted Pod before the next observation (upstream's `podCleanupTimeout`).
const POD_CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// State of the eviction manager.
pub(crate) struct Evictions {
    policy: EvictionPolicy,
    system_stats: SystemStats,
    watch: Mutex<EvictionManager>,
    /// Next check of local storage limits.
    rest_until: Mutex<Option<Instant>>,
    /// Evictions by signal.
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// Preemptions for critical Pods by resource.
    preemptions: Mutex<BTreeMap<String, u64>>,
    /// Image directory as reported by the runtime.
    image_fs: OnceLock<PathBuf>,
    /// Notified when the pressure conditions of the node have changed.
    pub(crate) changed: Notify,
}

impl Evictions {
    pub(crate) fn new(policy: EvictionPolicy, system_stats: SystemStats) -> Self {
        let (watch, rest_until, counts) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (image_fs, preemptions, changed) = (OnceLock::new(), Mutex::default(), Notify::new());
        Self { policy, system_stats, watch, rest_until, counts, preemptions, image_fs, changed }
    }

    pub(crate) fn system_stats(&self) -> &SystemStats {
        &self.system_stats
    }

    /// Returns the current pressure conditions.
    pub(crate) fn pressures(&self) -> Vec<NodePressure> {
        self.watch.lock().pressures().to_vec()
    }

    /// Returns the evictions since the start, by signal.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().clone()
    }

    /// Returns the preemptions for critical Pods since the start, by resource.
    pub(crate) fn preemptions(&self) -> BTreeMap<String, u64> {
        self.preemptions.lock().clone()
    }

    pub(crate) fn count_preemption(&self, resource: &str) {
        *self.preemptions.lock().entry(resource.to_owned()).or_default() += 1;
    }

    fn count(&self, signal: &'static str) {
        *self.counts.lock().entry(signal).or_default() += 1;
    }
}

pub(crate) async fn run(shared: &Shared) {
    while !shared.stop.is_cancelled() {
        let evicted = synchronize(shared).await;
        let pause = async {
            if evicted.is_empty() {
                tokio::time::sleep(MONITORING_PERIOD).await;
            } else {
                let all = futures::future::join_all(evicted.iter().map(|uid| wait_for_cleanup(shared, uid)));
                let _ = tokio::time::timeout(POD_CLEANUP_TIMEOUT, all).await;
            }
        };
        shared.stop.run_until_cancelled(pause).await;
    }
}

/// Waits until an evicted Pod has terminated and its resources are released; otherwise another Pod would be evicted for
/// the same shortage.
async fn wait_for_cleanup(shared: &Shared, uid: &str) {
    let Some(mut state) = shared.pods.by_uid(uid).map(|h| h.state) else { return };
    // An error means that the worker has ended.
    let _ = state.wait_for(|pod| pod.has_released_resources(shared.now())).await;
}

/// Observes the signals once and evicts Pods (upstream's `synchronize`). Returns the UIDs of the evicted Pods.
async fn synchronize(shared: &Shared) -> Vec<String> {
    let evictions = &shared.evictions;
    let image_fs = image_fs(shared).await;
    let starved = if evictions.policy.thresholds.is_empty() {
        None
    } else {
        let observations = node_observations(shared, image_fs.clone()).await;
        let mut watch = evictions.watch.lock();
        let old_pressures = watch.pressures().to_vec();
        let starved = watch.observe(&evictions.policy, &observations, shared.now());
        if old_pressures != watch.pressures() {
            tracing::info!(pressures = ?watch.pressures(), "node pressure conditions changed");
            evictions.changed.notify_one();
        }
        starved
    };
    let split = evictions.system_stats.split_disks(&image_fs);
    // Pods over their local storage limits are evicted first, which may suffice.
    let evicted = evict_over_local_storage_limits(shared, split).await;
    match starved {
        Some(starved) if evicted.is_empty() => evict_one(shared, &starved, split, image_fs).await,
        _ => evicted,
    }
}

/// Returns the directory of images, as reported by the runtime; else the root directory.
pub(crate) async fn image_fs(shared: &Shared) -> PathBuf {
    let cached_path = &shared.evictions.image_fs;
    if let Some(path) = cached_path.get() {
        return path.clone();
    }
    match shared.runtime.image_fs().await {
        Ok(path) => cached_path.get_or_init(|| path.unwrap_or_else(|| shared.options.root_dir.clone())).clone(),
        Err(_) => shared.options.root_dir.clone(),
    }
}

async fn node_observations(shared: &Shared, image_fs: PathBuf) -> SignalObservations {
    let system_stats = shared.evictions.system_stats.clone();
    let pods = shared.cgroups.pods_memory();
    let read = blocking::run_infallible(move || system_stats.signal_observations(&image_fs, pods));
    read.await.unwrap_or_default()
}

fn candidates(shared: &Shared) -> Vec<Arc<Pod>> {
    let mut all = pod_stats::active(shared);
    all.retain(|pod| !pod.is_ending(shared.now()) && !pod.awaits_relist());
    all
}

async fn evict_over_local_storage_limits(shared: &Shared, split: bool) -> Vec<String> {
    let (rest_until, began) = (&shared.evictions.rest_until, Instant::now());
    if rest_until.lock().is_some_and(|until| began < until) {
        return Vec::new();
    }
    let mut pods = candidates(shared);
    pods.retain(|pod| has_local_storage_limits(pods::spec(pod)));
    let (mut evicted, mut counted) = (Vec::new(), !shared.pods.awaits_relist());
    for stats in pod_stats::collect(shared, pods, true).await {
        counted &= stats.is_counted();
        if let Some(eviction) = local_storage_eviction(&stats.pod, &stats.eviction_usage(), split) {
            evicted.extend(evict(shared, &stats.pod, eviction, "ephemeralstorage.limit"));
        }
    }
    // New Pods are measured by the runtime with a delay; an incomplete measurement is repeated soon.
    *rest_until.lock() = counted.then(|| Instant::now() + (began.elapsed() * SHARE).min(LONGEST_REST));
    evicted
}

async fn evict_one(shared: &Shared, starved: &MetThreshold, split: bool, image_fs: PathBuf) -> Vec<String> {
    let message = format!("Attempting to reclaim {}", starved.resource());
    shared.recorder.record_node(EventKind::Warning, "EvictionThresholdMet", message);
    if starved.reclaims_unused_first(split) && reclaim_node_level_resources(shared, image_fs).await {
        tracing::info!(resource = starved.resource(), "reclaimed enough unused resources, no Pod is evicted");
        return Vec::new();
    }
    let stats = pod_stats::collect(shared, candidates(shared), true).await;
    let candidates: Vec<EvictionCandidate> =
        stats.iter().map(|s| EvictionCandidate { pod: Arc::clone(&s.pod), usage: Some(s.eviction_usage()) }).collect();
    let chosen = select_victim(starved, &candidates, split);
    let evicted = chosen.and_then(|(who, eviction)| evict(shared, &who.pod, eviction, starved.signal().as_str()));
    evicted.into_iter().collect()
}

/// Removes dead containers and unused images. Returns whether all thresholds are met then (upstream's
/// `reclaimNodeLevelResources`).
async fn reclaim_node_level_resources(shared: &Shared, image_fs: PathBuf) -> bool {
    let with_dead_containers =
        shared.pods.all().into_iter().filter(|handle| handle.state.borrow().keeps_dead_containers());
    let removals = with_dead_containers.map(|handle| async move {
        let _ = handle.messages.send(PodMessage::Event(PodLifecycleEvent::DiskFull));
        let mut state = handle.state;
        let _ = state.wait_for(|pod| !pod.keeps_dead_containers()).await;
    });
    let all = async {
        futures::future::join_all(removals).await;
        gc::delete_unused(shared).await;
    };
    // A hanging runtime must not block the eviction.
    let _ = tokio::time::timeout(POD_CLEANUP_TIMEOUT, all).await;
    is_reclaimed(&shared.evictions.policy, &node_observations(shared, image_fs).await)
}

/// Evicts a Pod by a message to its worker. Returns the Pod's UID.
fn evict(shared: &Shared, pod: &ApiPod, eviction: Eviction, signal: &'static str) -> Option<String> {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let handle = shared.pods.by_uid(&uid)?;
    tracing::info!(pod = pod.metadata.name, reason = eviction.message, "evicting a Pod");
    handle.messages.send(PodMessage::Event(PodLifecycleEvent::Evicted(eviction))).ok()?;
    shared.evictions.count(signal);
    Some(uid)
}
