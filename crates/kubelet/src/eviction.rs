//! Pods go when the node lacks something: what there is to see is looked at, and `lifecycle::eviction` decides.

use crate::{Shared, actor::PodMessage, blocking, figures::Figures, images::collect, pods, stats};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use lifecycle::{
    Event, EventKind, Eviction, Pod, Pressure,
    eviction::{Candidate, EvictionPolicy, NodeFigures, Starved, Watch, has_limits, is_enough, over_limits, victim},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// How often the node is looked at (LIFECYCLE.md 3.2, "eviction monitor").
const INTERVAL: Duration = Duration::from_secs(10);
/// Counting files takes at most one part in so many of the time, and is done once in `LONGEST_REST` at least (upstream's
/// `volumeStatsAggPeriod`).
const SHARE: u32 = 100;
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How long a Pod that goes is waited for before the node is looked at again (`podCleanupTimeout`).
const CLEANUP: Duration = Duration::from_secs(30);

/// What the node lacks, and what came of it.
pub(crate) struct Evictions {
    policy: EvictionPolicy,
    figures: Figures,
    watch: Mutex<Watch>,
    /// When what Pods have promised is looked at again.
    rest_until: Mutex<Option<Instant>>,
    /// How many Pods went, by what for.
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// How many Pods went for critical ones, by the resource.
    preemptions: Mutex<BTreeMap<String, u64>>,
    /// Where images are, once the runtime has said.
    image_fs: OnceLock<PathBuf>,
    /// Rung when the conditions of the node have changed.
    pub(crate) changed: Notify,
}

impl Evictions {
    pub(crate) fn new(policy: EvictionPolicy, figures: Figures) -> Self {
        let (watch, rest_until, counts) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (image_fs, preemptions, changed) = (OnceLock::new(), Mutex::default(), Notify::new());
        Self { policy, figures, watch, rest_until, counts, preemptions, image_fs, changed }
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// What the node lacks now.
    pub(crate) fn pressures(&self) -> Vec<Pressure> {
        self.watch.lock().pressures().to_vec()
    }

    /// How many Pods went since the start, by what for.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().clone()
    }

    /// How many Pods went for critical ones since the start, by the resource.
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
        let gone = look(shared).await;
        let pause = async {
            if gone.is_empty() {
                tokio::time::sleep(INTERVAL).await;
            } else {
                let all = futures::future::join_all(gone.iter().map(|uid| stopped(shared, uid)));
                let _ = tokio::time::timeout(CLEANUP, all).await;
            }
        };
        shared.stop.run_until_cancelled(pause).await;
    }
}

/// Waits until a Pod that has to go has heard of it, nothing of it runs any more, and what it had is free: else another would
/// have to go for the same.
async fn stopped(shared: &Shared, uid: &str) {
    let Some(mut known) = shared.pods.by_uid(uid).map(|h| h.state) else { return };
    // Nobody who might tell is there any more: it is gone.
    let _ = known.wait_for(|pod| pod.has_made_room(shared.now())).await;
}

/// Looks at the node once; gives the Pods that have to go.
async fn look(shared: &Shared) -> Vec<String> {
    let evictions = &shared.evictions;
    let image_fs = image_fs(shared).await;
    let starved = if evictions.policy.thresholds.is_empty() {
        None
    } else {
        let figures = node_figures(shared, image_fs.clone()).await;
        let mut watch = evictions.watch.lock();
        let before = watch.pressures().to_vec();
        let starved = watch.observe(&evictions.policy, &figures, shared.now());
        if before != watch.pressures() {
            tracing::info!(pressures = ?watch.pressures(), "what the node lacks has changed");
            evictions.changed.notify_one();
        }
        starved
    };
    let split = evictions.figures.split_disks(&image_fs);
    // Who took more than promised goes first; that may be enough.
    let gone = over_their_limits(shared, split).await;
    match starved {
        Some(starved) if gone.is_empty() => one_goes(shared, &starved, split, image_fs).await,
        _ => gone,
    }
}

/// Where images are: where the runtime says, or where our own puts them.
pub(crate) async fn image_fs(shared: &Shared) -> PathBuf {
    let known = &shared.evictions.image_fs;
    if let Some(path) = known.get() {
        return path.clone();
    }
    match shared.runtime.image_fs().await {
        Ok(path) => known.get_or_init(|| path.unwrap_or_else(|| shared.options.root_dir.clone())).clone(),
        Err(_) => shared.options.root_dir.clone(),
    }
}

async fn node_figures(shared: &Shared, image_fs: PathBuf) -> NodeFigures {
    let figures = shared.evictions.figures.clone();
    let pods = shared.cgroups.all_pods();
    let read = blocking::run(move || Ok(figures.of_node(&image_fs, pods)));
    read.await.unwrap_or_default()
}

fn candidates(shared: &Shared) -> Vec<Arc<Pod>> {
    let mut all = stats::active(shared);
    all.retain(|pod| !pod.is_ending(shared.now()) && !pod.awaits_list());
    all
}

async fn over_their_limits(shared: &Shared, split: bool) -> Vec<String> {
    let (rest_until, began) = (&shared.evictions.rest_until, Instant::now());
    if rest_until.lock().is_some_and(|until| began < until) {
        return Vec::new();
    }
    let mut pods = candidates(shared);
    pods.retain(|pod| has_limits(pods::spec(pod)));
    let (mut gone, mut counted) = (Vec::new(), !shared.pods.awaits_relist());
    for stats in stats::of_pods(shared, pods, true).await {
        counted &= stats.is_counted();
        if let Some(eviction) = over_limits(&stats.pod, &stats.figures(), split) {
            gone.extend(evict(shared, &stats.pod, eviction, "ephemeralstorage.limit"));
        }
    }
    // The runtime counts what is new to it after a while, and tells of its Pods: that is not to wait for a whole rest.
    *rest_until.lock() = counted.then(|| Instant::now() + (began.elapsed() * SHARE).min(LONGEST_REST));
    gone
}

async fn one_goes(shared: &Shared, starved: &Starved, split: bool, image_fs: PathBuf) -> Vec<String> {
    let message = format!("Attempting to reclaim {}", starved.resource());
    shared.recorder.record_node(EventKind::Warning, "EvictionThresholdMet", message);
    if starved.takes_unused_first(split) && unused_is_enough(shared, image_fs).await {
        tracing::info!(resource = starved.resource(), "there is enough again without what nobody uses: no Pod goes");
        return Vec::new();
    }
    let stats = stats::of_pods(shared, candidates(shared), true).await;
    let candidates: Vec<Candidate> =
        stats.iter().map(|s| Candidate { pod: Arc::clone(&s.pod), figures: Some(s.figures()) }).collect();
    let chosen = victim(starved, &candidates, split);
    let gone = chosen.and_then(|(who, eviction)| evict(shared, &who.pod, eviction, starved.signal().as_str()));
    gone.into_iter().collect()
}

/// Removes dead containers and unused images; says whether there is enough of everything then.
async fn unused_is_enough(shared: &Shared, image_fs: PathBuf) -> bool {
    let gone = shared.pods.all().into_iter().filter(|handle| handle.state.borrow().keeps_dead_containers());
    let emptied = gone.map(|handle| async move {
        let _ = handle.messages.send(PodMessage::Event(Event::DiskFull));
        let mut known = handle.state;
        let _ = known.wait_for(|pod| !pod.keeps_dead_containers()).await;
    });
    let all = async {
        futures::future::join_all(emptied).await;
        collect::delete_unused(shared).await;
    };
    // A runtime that does not answer frees nothing.
    let _ = tokio::time::timeout(CLEANUP, all).await;
    is_enough(&shared.evictions.policy, &node_figures(shared, image_fs).await)
}

/// Tells a Pod's task; gives the Pod's UID.
fn evict(shared: &Shared, pod: &ApiPod, eviction: Eviction, signal: &'static str) -> Option<String> {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let handle = shared.pods.by_uid(&uid)?;
    tracing::info!(pod = pod.metadata.name, why = eviction.message, "a Pod has to go");
    handle.messages.send(PodMessage::Event(Event::Evicted(eviction))).ok()?;
    shared.evictions.count(signal);
    Some(uid)
}
