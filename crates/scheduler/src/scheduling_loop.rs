//! Scheduling loop: applies watch events to the cache and the queue (upstream's `eventhandlers.go`), and runs a
//! scheduling cycle for each Pod of the queue ([`SchedulingLoop::schedule_one`]).

mod schedule_one;

use crate::{
    DEFAULT_SCHEDULER, Options,
    cache::Cache,
    disruption_budgets,
    pod_constraints::depends_on_other_pods,
    queue::SchedulingQueue,
    reflector::{ListState, relisting_watch},
    volume_reflector::{self, VolumeEvent, VolumeListStates},
    writer::{WriteOutcome, Writer},
};
use api::{
    pod::{is_terminal, node_name},
    without_managed_fields::WithoutManagedFields,
};
use futures::stream::StreamExt;
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client,
    runtime::watcher::{Error, Event},
};
use std::sync::Arc;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

pub(crate) struct SchedulingLoop {
    client: Client,
    options: Options,
    writer: Writer,
    cache: Cache,
    queue: SchedulingQueue,
    /// Writes in flight (bindings, conditions, events).
    writes: JoinSet<WriteOutcome>,
    nodes: ListState,
    pods: ListState,
    storage: VolumeListStates,
    namespaces: ListState,
    /// Whether a queued Pod may have inter-Pod affinity or topology spread constraints.
    may_depend_on_other_pods: bool,
    budgets: ListState,
}

impl SchedulingLoop {
    pub(crate) fn new(client: Client, options: Options) -> Self {
        Self {
            writer: Writer::new(client.clone(), &options.scheduler_name),
            client,
            options,
            cache: Cache::default(),
            queue: SchedulingQueue::default(),
            writes: JoinSet::new(),
            nodes: ListState::default(),
            pods: ListState::default(),
            storage: VolumeListStates::default(),
            namespaces: ListState::default(),
            may_depend_on_other_pods: false,
            budgets: ListState::default(),
        }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut nodes = relisting_watch::<Node>(Api::all(self.client.clone()));
        // No field selector on `status.phase`: the server would decode every Pod to apply it, and this watch decodes
        // it anyway.
        let mut pods = relisting_watch::<WithoutManagedFields<Pod>>(Api::all(self.client.clone()));
        let mut storage = volume_reflector::watch(&self.client);
        let mut namespaces = relisting_watch::<WithoutManagedFields<Namespace>>(Api::all(self.client.clone()));
        let mut budgets = disruption_budgets::watch(&self.client);
        loop {
            let wakeup = self.queue.next_wakeup().filter(|_| self.may_schedule());
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = nodes.next() => self.on_node(event),
                Some(event) = pods.next() => self.on_pod(event),
                Some(seen) = storage.next() => self.on_storage(seen),
                Some(event) = namespaces.next() => self.on_namespace(event),
                Some(event) = budgets.next() => self.on_budget(event),
                Some(done) = self.writes.join_next() => match done {
                    Ok(outcome) => self.on_write_finished(outcome),
                    Err(e) => tracing::error!(error = %e, "write task failed"),
                },
                () = sleep_until(wakeup) => {}
            }
            self.schedule();
        }
    }

    fn may_schedule(&self) -> bool {
        let lists = [&self.nodes, &self.pods, &self.namespaces, &self.budgets];
        let synced = self.storage.synced() && lists.iter().all(|list| list.synced);
        synced && self.writes.len() < self.options.writes_in_flight
    }

    /// Schedules the Pods of the queue until it is empty or too many writes are in flight.
    fn schedule(&mut self) {
        while self.may_schedule() {
            if self.cache.take_pods_changed() && std::mem::take(&mut self.may_depend_on_other_pods) {
                self.queue.move_matching(Instant::now(), depends_on_other_pods);
            }
            let Some((uid, pod)) = self.queue.pop(Instant::now()) else {
                return;
            };
            self.schedule_one(uid, pod);
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

    fn on_node(&mut self, event: Result<Event<Node>, Error>) {
        match event {
            Ok(Event::Init) => self.nodes.seen.clear(),
            Ok(Event::InitApply(node)) => {
                self.nodes.seen.extend(node.metadata.name.clone());
                self.set_node(&node);
            }
            Ok(Event::InitDone) => {
                let seen = std::mem::take(&mut self.nodes.seen);
                self.cache.retain_nodes(|name| seen.contains(name));
                self.nodes.synced = true;
            }
            Ok(Event::Apply(node)) => self.set_node(&node),
            Ok(Event::Delete(node)) => self.cache.remove_node(node.metadata.name.as_deref().unwrap_or_default()),
            Err(e) => tracing::warn!(error = %e, "failed to watch nodes"),
        }
    }

    fn set_node(&mut self, node: &Node) {
        if self.cache.set_node(node) {
            self.queue.move_all(Instant::now());
        }
    }

    fn on_pod(&mut self, event: Result<Event<WithoutManagedFields<Pod>>, Error>) {
        match event {
            Ok(Event::Init) => self.pods.seen.clear(),
            Ok(Event::InitApply(WithoutManagedFields(pod))) => {
                self.pods.seen.extend(pod.metadata.uid.clone());
                self.set_pod(pod);
            }
            Ok(Event::InitDone) => {
                let seen = std::mem::take(&mut self.pods.seen);
                self.queue.retain(|uid| seen.contains(uid));
                self.writer.retain(|uid| seen.contains(uid));
                let freed = self.cache.retain_nominated_pods(|uid| seen.contains(uid));
                if self.cache.retain_pods(|uid| seen.contains(uid)) || freed {
                    self.queue.move_all(Instant::now());
                }
                self.pods.synced = true;
            }
            Ok(Event::Apply(WithoutManagedFields(pod))) => self.set_pod(pod),
            Ok(Event::Delete(WithoutManagedFields(pod))) => {
                self.remove_pod(pod.metadata.uid.as_deref().unwrap_or_default());
            }
            Err(e) => tracing::warn!(error = %e, "failed to watch pods"),
        }
    }

    fn on_storage(&mut self, seen: Result<VolumeEvent, Error>) {
        match seen {
            Ok(seen) => {
                if let Some(affected) = self.storage.apply_event(&mut self.cache.storage, seen) {
                    self.queue.move_matching(Instant::now(), |pod| affected.contains(pod));
                }
            }
            Err(e) => tracing::warn!(error = %e, "failed to watch persistent volumes and claims"),
        }
    }

    fn on_namespace(&mut self, event: Result<Event<WithoutManagedFields<Namespace>>, Error>) {
        match event {
            Ok(event) => {
                if let Some(name) = self.cache.namespaces.apply_event(&mut self.namespaces, event) {
                    // A `namespaceSelector` of another Pod may match this namespace now.
                    let is_affected =
                        |pod: &Pod| depends_on_other_pods(pod) || pod.metadata.namespace.as_ref() == Some(&name);
                    self.queue.move_matching(Instant::now(), is_affected);
                }
            }
            Err(e) => tracing::warn!(error = %e, "failed to watch namespaces"),
        }
    }

    fn on_budget(&mut self, event: Result<Event<WithoutManagedFields<PodDisruptionBudget>>, Error>) {
        match event {
            // A changed budget makes no Pod schedulable.
            Ok(event) => drop(self.budgets.apply_event(&mut self.cache.budgets, event, |budget| budget)),
            Err(e) => tracing::warn!(error = %e, "failed to watch pod disruption budgets"),
        }
    }

    fn set_pod(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else {
            return;
        };
        if is_terminal(&pod) {
            self.remove_pod(&uid);
        } else if node_name(&pod).is_some() {
            self.queue.remove(&uid);
            self.writer.forget(&uid);
            self.clear_nomination(&uid, node_name(&pod));
            if self.cache.set_pod(&pod) {
                self.queue.move_all(Instant::now());
            }
        } else if !self.is_responsible_for(&pod) || pod.metadata.deletion_timestamp.is_some() {
            self.queue.remove(&uid);
            self.clear_nomination(&uid, None);
        } else if !self.cache.is_assumed(&uid) {
            if self.cache.update_nominated_pod(&uid, &pod) {
                self.queue.move_all(Instant::now());
            }
            self.queue.add_or_update(&uid, Arc::new(pod), Instant::now());
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
