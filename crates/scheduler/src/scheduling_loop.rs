//! Scheduling loop: applies watch events to the cache and the queue (upstream's `eventhandlers.go`), and runs a
//! scheduling cycle for each Pod of the queue ([`SchedulingLoop::schedule_one`]).

mod schedule_one;

use crate::{
    DEFAULT_SCHEDULER, Options,
    cache::{Cache, NodeInfo},
    cache_updates::apply_event,
    namespace_labels::LabeledNamespace,
    pod_constraints::depends_on_other_pods,
    queue::{PendingPod, SchedulingQueue},
    volume_informers::{VolumeEvent, VolumeInformers},
    writer::{WriteOutcome, Writer},
};
use api::pod::node_name;
use futures::stream::StreamExt;
use informer::{CacheEvent, SharedInformer, SharedInformerFactory, key, pod_summary::PodSummary};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::Client;
use std::{collections::HashSet, sync::Arc};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

pub(crate) struct SchedulingLoop {
    options: Options,
    writer: Writer,
    cache: Cache,
    queue: SchedulingQueue,
    /// Writes in flight (bindings, conditions, events).
    writes: JoinSet<WriteOutcome>,
    nodes: SharedInformer<NodeInfo>,
    pods: SharedInformer<PodSummary>,
    storage: VolumeInformers,
    namespaces: SharedInformer<LabeledNamespace>,
    budgets: SharedInformer<PodDisruptionBudget>,
    /// Whether all initial lists are in the cache. Nothing is scheduled before.
    synced: bool,
    /// Whether a queued Pod may have inter-Pod affinity or topology spread constraints.
    may_depend_on_other_pods: bool,
}

impl SchedulingLoop {
    /// Starts the informers.
    pub(crate) fn new(client: Client, informers: &SharedInformerFactory, options: Options) -> Self {
        Self {
            writer: Writer::new(client, &options.scheduler_name),
            options,
            cache: Cache::default(),
            queue: SchedulingQueue::new(Instant::now()),
            writes: JoinSet::new(),
            nodes: informers.informer(),
            pods: informers.informer(),
            storage: VolumeInformers::start(informers),
            namespaces: informers.informer(),
            budgets: informers.informer(),
            synced: false,
            may_depend_on_other_pods: false,
        }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let (mut nodes, mut pods) = (self.nodes.subscribe(), self.pods.subscribe());
        let (mut storage, mut namespaces) = (self.storage.subscribe(), self.namespaces.subscribe());
        let mut budgets = self.budgets.subscribe();
        loop {
            let wakeup = self.queue.next_wakeup().filter(|_| self.may_schedule());
            let is_idle = self.may_schedule() && self.queue.has_backing_off();
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = nodes.next() => self.on_node(&event),
                Some(event) = pods.next() => self.on_pod(&event),
                Some(event) = storage.next() => self.on_storage(&event),
                Some(event) = namespaces.next() => self.on_namespace(&event),
                Some(event) = budgets.next() => self.on_budget(&event),
                Some(done) = self.writes.join_next() => match done {
                    Ok(outcome) => self.on_write_finished(outcome),
                    Err(e) => tracing::error!(error = %e, "write task failed"),
                },
                () = sleep_until(wakeup) => {}
                // Pending at first: events and other tasks precede.
                () = tokio::task::yield_now(), if is_idle => self.schedule_backing_off(),
            }
            self.synced = self.synced || self.sync();
            self.schedule();
        }
    }

    /// Applies everything that the informers have to the cache, once all initial lists are complete. Returns whether
    /// they are: their last events may still be in the subscriptions.
    fn sync(&mut self) -> bool {
        let is_complete = self.nodes.has_synced()
            && self.pods.has_synced()
            && self.storage.has_synced()
            && self.namespaces.has_synced()
            && self.budgets.has_synced();
        if is_complete {
            self.on_node(&CacheEvent::Resync);
            for event in VolumeEvent::RESYNCS {
                self.on_storage(&event);
            }
            self.on_namespace(&CacheEvent::Resync);
            self.on_budget(&CacheEvent::Resync);
            self.on_pod(&CacheEvent::Resync);
        }
        is_complete
    }

    fn may_schedule(&self) -> bool {
        self.synced && self.writes.len() < self.options.writes_in_flight
    }

    /// Schedules the Pods of the queue until it is empty or too many writes are in flight.
    fn schedule(&mut self) {
        while self.may_schedule() {
            self.move_dependent_pods();
            let Some((uid, pod)) = self.queue.pop(Instant::now()) else {
                return;
            };
            self.schedule_one(uid, &pod);
        }
    }

    /// Schedules one Pod before the end of its backoff, while there is no other work.
    fn schedule_backing_off(&mut self) {
        if let Some((uid, pod)) = self.queue.pop_backing_off() {
            self.schedule_one(uid, &pod);
        }
    }

    /// Moves Pods that depend on other Pods, if one of those has changed.
    fn move_dependent_pods(&mut self) {
        if self.cache.take_pods_changed() && std::mem::take(&mut self.may_depend_on_other_pods) {
            self.queue.move_matching(Instant::now(), |pod| pod.depends_on_other_pods);
        }
    }

    /// Clears the Pod's nomination. Unless the Pod is bound to that node, other Pods may fit there now.
    fn clear_nomination(&mut self, uid: &str, target: Option<&str>) {
        if self.cache.delete_nominated_pod(uid).is_some_and(|nominated| Some(nominated.as_str()) != target) {
            self.queue.move_all(Instant::now());
        }
    }

    fn on_write_finished(&mut self, outcome: WriteOutcome) {
        let now = Instant::now();
        match outcome {
            WriteOutcome::Bound(uid) => {
                self.queue.remove(&uid);
                self.writer.forget(&uid);
            }
            WriteOutcome::Gone(uid) => self.remove_pod(&uid),
            WriteOutcome::BindFailed(uid) => {
                if self.cache.is_assumed(&uid) && self.cache.remove_pod(&uid) {
                    self.queue.move_all(now);
                }
                self.queue.retry(&uid, now);
            }
            WriteOutcome::Reported(uid) => self.queue.add_unschedulable(&uid, now),
            WriteOutcome::VolumesRequested(uid) => {
                self.queue.mark_provisioning_requested(&uid);
                self.queue.add_unschedulable(&uid, now);
            }
            WriteOutcome::VolumesFailed(uid, pod_volumes) => {
                self.cache.storage.revert(*pod_volumes);
                self.queue.retry(&uid, now);
            }
            WriteOutcome::PreemptionFailed(uid, victims) => {
                for victim in victims {
                    self.cache.unmark_preempted(&victim);
                }
                self.queue.retry(&uid, now);
            }
        }
    }

    fn on_node(&mut self, event: &CacheEvent<NodeInfo>) {
        let current = match event {
            CacheEvent::Changed { .. } => {
                let Some(name) = event.objects().next().map(|node| key(node.as_ref())) else { return };
                match self.nodes.get_by_key(&name) {
                    Some(node) => vec![node],
                    None => return self.cache.remove_node(&name),
                }
            }
            CacheEvent::Resync => {
                let all = self.nodes.all();
                let names: HashSet<String> = all.iter().map(|node| key(node.as_ref())).collect();
                self.cache.retain_nodes(|name| names.contains(name));
                all
            }
        };
        for node in current {
            if self.cache.set_node_info(node) {
                self.queue.move_all(Instant::now());
            }
        }
    }

    /// Handles a change of a Pod. Its state is read from the informer, because the event may be older than what a resync
    /// or a later event has shown.
    fn on_pod(&mut self, event: &CacheEvent<PodSummary>) {
        let Some(key) = event.objects().next().map(|pod| key(pod.as_ref())) else {
            return self.resync_pods();
        };
        let current = self.pods.get_by_key(&key);
        for pod in event.objects() {
            // Another Pod may have the name now.
            if current.as_ref().is_none_or(|current| current.uid != pod.uid) {
                self.remove_pod(&pod.uid);
            }
        }
        if let Some(pod) = current {
            self.set_pod(&pod);
        }
    }

    fn resync_pods(&mut self) {
        let all = self.pods.all();
        let uids: HashSet<&str> = all.iter().map(|pod| pod.uid.as_str()).collect();
        self.queue.retain(|uid| uids.contains(uid));
        self.writer.retain(|uid| uids.contains(uid));
        let freed = self.cache.retain_nominated_pods(|uid| uids.contains(uid));
        if self.cache.retain_pods(|uid| uids.contains(uid)) || freed {
            self.queue.move_all(Instant::now());
        }
        for pod in &all {
            self.set_pod(pod);
        }
    }

    fn on_storage(&mut self, event: &VolumeEvent) {
        if let Some(affected) = self.storage.apply_event(&mut self.cache.storage, event) {
            self.queue.move_matching(Instant::now(), |pod| affected.contains(pod));
        }
    }

    fn on_namespace(&mut self, event: &CacheEvent<LabeledNamespace>) {
        let changed = self.cache.namespaces.apply_event(&self.namespaces, event);
        if !changed.is_empty() {
            // A `namespaceSelector` of another Pod may match these namespaces now.
            let is_affected = |pod: &PendingPod| pod.depends_on_other_pods || changed.contains(&pod.summary.namespace);
            self.queue.move_matching(Instant::now(), is_affected);
        }
    }

    fn on_budget(&mut self, event: &CacheEvent<PodDisruptionBudget>) {
        // A changed budget makes no Pod schedulable.
        apply_event(&mut self.cache.budgets, &self.budgets, event);
    }

    fn set_pod(&mut self, summary: &Arc<PodSummary>) {
        let uid = summary.uid.as_str();
        if self.cache.has_observed(summary) || self.queue.has(uid, summary) {
            return;
        }
        if summary.is_terminal() {
            return self.remove_pod(uid);
        }
        let pod = summary.to_scheduling_pod();
        if node_name(&pod).is_some() {
            self.queue.remove(uid);
            self.writer.forget(uid);
            self.clear_nomination(uid, node_name(&pod));
            if self.cache.observe_pod(summary, &pod) {
                self.queue.move_all(Instant::now());
            }
        } else if !self.is_responsible_for(&pod) || summary.terminating {
            self.queue.remove(uid);
            self.clear_nomination(uid, None);
        } else if !self.cache.is_assumed(uid) {
            if self.cache.update_nominated_pod(uid, &pod) {
                self.queue.move_all(Instant::now());
            }
            let depends_on_other_pods = depends_on_other_pods(&pod);
            let pending = PendingPod { summary: Arc::clone(summary), depends_on_other_pods };
            self.queue.add_or_update(uid, pending, Instant::now());
        }
    }

    fn is_responsible_for(&self, pod: &Pod) -> bool {
        let named = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).filter(|n| !n.is_empty());
        named.unwrap_or(DEFAULT_SCHEDULER) == self.options.scheduler_name
    }

    fn remove_pod(&mut self, uid: &str) {
        self.queue.remove(uid);
        self.writer.forget(uid);
        self.clear_nomination(uid, None);
        if self.cache.remove_pod(uid) {
            self.queue.move_all(Instant::now());
        }
    }
}

async fn sleep_until(wakeup: Option<Instant>) {
    match wakeup {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
