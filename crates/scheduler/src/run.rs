//! The loop: what happens in the cluster goes in, attempts to place Pods come out.

use crate::budgets;
use crate::cluster::{Cluster, Uid};
use crate::fit::{Decision, fit};
use crate::listing::{Listing, relisting};
use crate::message;
use crate::neighbours::cares;
use crate::preempt::Preemption;
use crate::queue::Queue;
use crate::storage_watch::{self, Listings, Seen};
use crate::write::{Outcome, Writer};
use crate::{DEFAULT_SCHEDULER, Options};
use api::lean::Lean;
use api::pod::{is_terminal, node_name};
use futures::stream::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher::{Error, Event};
use kube::{Api, Client};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) struct Loop {
    client: Client,
    options: Options,
    writer: Writer,
    cluster: Cluster,
    queue: Queue,
    /// Bindings and reports on their way.
    writes: JoinSet<Outcome>,
    nodes: Listing,
    pods: Listing,
    storage: Listings,
    namespaces: Listing,
    /// Whether a Pod that cares for others may be among those that wait.
    cared: bool,
    budgets: Listing,
}

impl Loop {
    pub(crate) fn new(client: Client, options: Options) -> Self {
        Self {
            writer: Writer::new(client.clone(), &options.scheduler_name),
            client,
            options,
            cluster: Cluster::default(),
            queue: Queue::default(),
            writes: JoinSet::new(),
            nodes: Listing::default(),
            pods: Listing::default(),
            storage: Listings::default(),
            namespaces: Listing::default(),
            cared: false,
            budgets: Listing::default(),
        }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut nodes = relisting::<Node>(Api::all(self.client.clone()));
        // Without a selector for the phase: the server would have to read every Pod to apply it, and here it is read anyway.
        let mut pods = relisting::<Lean<Pod>>(Api::all(self.client.clone()));
        let mut storage = storage_watch::watch(&self.client);
        let mut namespaces = relisting::<Lean<Namespace>>(Api::all(self.client.clone()));
        let mut budgets = budgets::watch(&self.client);
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
                    Ok(outcome) => self.on_written(outcome),
                    Err(e) => tracing::error!("a write ended without an outcome: {e}"),
                },
                () = until(wakeup) => {}
            }
            self.schedule();
        }
    }

    fn may_schedule(&self) -> bool {
        let listings = [&self.nodes, &self.pods, &self.namespaces, &self.budgets];
        let known = self.storage.complete() && listings.iter().all(|listing| listing.complete);
        known && self.writes.len() < self.options.writes_in_flight
    }

    fn schedule(&mut self) {
        while self.may_schedule() {
            if self.cluster.take_moved() && std::mem::take(&mut self.cared) {
                self.queue.changed_for(Instant::now(), cares);
            }
            let Some((uid, pod)) = self.queue.pop(Instant::now()) else {
                return;
            };
            self.place(uid, pod);
        }
    }

    fn place(&mut self, uid: Uid, pod: Arc<Pod>) {
        let spec = pod.spec.as_ref();
        if spec.is_some_and(|s| s.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty())) {
            // Nobody has tried to place it: without its gates it is tried at once.
            self.queue.forgive(&uid);
            if self.writer.needs_report(&pod, "SchedulingGated", message::GATED) {
                self.writes.spawn(self.writer.clone().gated(uid, pod));
            } else {
                self.queue.park(&uid, Instant::now());
            }
            return;
        }
        let decision = fit(&pod, &self.cluster);
        self.cared |= !matches!(decision, Decision::Node(_)) && cares(&pod);
        match decision {
            Decision::Node(node) => {
                self.withdraw(&uid, Some(&node));
                self.cluster.assume(&uid, &pod, &node);
                self.writes.spawn(self.writer.clone().bind(uid, pod, node));
            }
            Decision::Volumes(orders) => {
                if let Some(claim) = orders.first_made().filter(|_| self.queue.take_asked(&uid)) {
                    let why = message::not_made(claim);
                    self.writes.spawn(self.writer.clone().unschedulable(uid, pod, why, None));
                    return;
                }
                // What fits is no failure: it goes on as soon as others have done their part.
                self.queue.forgive(&uid);
                if orders.is_written() {
                    self.queue.park(&uid, Instant::now());
                } else {
                    self.cluster.storage.assume(&orders);
                    self.writes.spawn(self.writer.clone().order(uid, orders));
                }
            }
            Decision::Unschedulable(message) => {
                // While the cluster boots there is nothing to try; the first node must not wait for a back-off.
                if self.cluster.node_count() == 0 {
                    self.queue.forgive(&uid);
                }
                self.withdraw(&uid, None);
                self.writes.spawn(self.writer.clone().unschedulable(uid, pod, message, None));
            }
            Decision::Waits(message) => {
                let nominated = self.cluster.nominated_node(&uid).map(str::to_owned);
                self.writes.spawn(self.writer.clone().unschedulable(uid, pod, message, nominated));
            }
            Decision::Preempts(room) => self.preempt(uid, pod, room),
        }
    }

    fn preempt(&mut self, uid: Uid, pod: Arc<Pod>, room: Box<Preemption>) {
        for outranked in &room.outranked {
            self.cluster.withdraw(&outranked.uid);
        }
        // Those may fit elsewhere.
        let is_outranked = |pod: &Pod| room.outranked.iter().any(|other| pod.metadata.uid.as_ref() == Some(&other.uid));
        if !room.outranked.is_empty() {
            self.queue.changed_for(Instant::now(), is_outranked);
        }
        self.withdraw(&uid, Some(&room.node));
        let victims = room.victims.iter().filter(|victim| self.cluster.order_away(&victim.uid)).cloned().collect();
        self.cluster.nominate(&uid, &pod, &room.node);
        self.writes.spawn(self.writer.clone().preempt(uid, pod, room, victims));
    }

    /// Gives up the place that is kept for a Pod, if any: unless it goes there, another one may fit now.
    fn withdraw(&mut self, uid: &str, goes_to: Option<&str>) {
        if self.cluster.withdraw(uid).is_some_and(|kept| Some(kept.as_str()) != goes_to) {
            self.queue.changed(Instant::now());
        }
    }

    fn on_written(&mut self, outcome: Outcome) {
        let now = Instant::now();
        match outcome {
            Outcome::Bound(uid) => {
                self.queue.remove(&uid);
                self.writer.forget(&uid);
            }
            Outcome::Gone(uid) => self.remove_pod(&uid),
            Outcome::BindFailed(uid) => {
                if self.cluster.is_assumed(&uid) && self.cluster.remove_pod(&uid) {
                    self.queue.changed(now);
                }
                self.queue.retry(&uid, now);
            }
            Outcome::Reported(uid) => self.queue.park(&uid, now),
            Outcome::Ordered(uid) => {
                self.queue.note_asked(&uid);
                self.queue.park(&uid, now);
            }
            Outcome::NotOrdered(uid, orders) => {
                self.cluster.storage.revert(*orders);
                self.queue.retry(&uid, now);
            }
            Outcome::NotPreempted(uid, victims) => {
                for victim in victims {
                    self.cluster.let_stay(&victim);
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
                self.cluster.retain_nodes(|name| seen.contains(name));
                self.nodes.complete = true;
            }
            Ok(Event::Apply(node)) => self.set_node(&node),
            Ok(Event::Delete(node)) => self.cluster.remove_node(node.metadata.name.as_deref().unwrap_or_default()),
            Err(e) => tracing::warn!("the watch of nodes is interrupted: {e}"),
        }
    }

    fn set_node(&mut self, node: &Node) {
        if self.cluster.set_node(node) {
            self.queue.changed(Instant::now());
        }
    }

    fn on_pod(&mut self, event: Result<Event<Lean<Pod>>, Error>) {
        match event {
            Ok(Event::Init) => self.pods.seen.clear(),
            Ok(Event::InitApply(Lean(pod))) => {
                self.pods.seen.extend(pod.metadata.uid.clone());
                self.set_pod(pod);
            }
            Ok(Event::InitDone) => {
                let seen = std::mem::take(&mut self.pods.seen);
                self.queue.retain(|uid| seen.contains(uid));
                self.writer.retain(|uid| seen.contains(uid));
                let gave_up = self.cluster.retain_nominations(|uid| seen.contains(uid));
                if self.cluster.retain_pods(|uid| seen.contains(uid)) || gave_up {
                    self.queue.changed(Instant::now());
                }
                self.pods.complete = true;
            }
            Ok(Event::Apply(Lean(pod))) => self.set_pod(pod),
            Ok(Event::Delete(Lean(pod))) => self.remove_pod(pod.metadata.uid.as_deref().unwrap_or_default()),
            Err(e) => tracing::warn!("the watch of Pods is interrupted: {e}"),
        }
    }

    fn on_storage(&mut self, seen: Result<Seen, Error>) {
        match seen {
            Ok(seen) => {
                if let Some(concern) = self.storage.fold(&mut self.cluster.storage, seen) {
                    self.queue.changed_for(Instant::now(), |pod| concern.is_about(pod));
                }
            }
            Err(e) => tracing::warn!("the watch of claims to storage is interrupted: {e}"),
        }
    }

    fn on_namespace(&mut self, event: Result<Event<Lean<Namespace>>, Error>) {
        match event {
            Ok(event) => {
                if let Some(name) = self.cluster.namespaces.fold(&mut self.namespaces, event) {
                    // What Pods elsewhere say of those in it may mean others now.
                    let concerns = |pod: &Pod| cares(pod) || pod.metadata.namespace.as_ref() == Some(&name);
                    self.queue.changed_for(Instant::now(), concerns);
                }
            }
            Err(e) => tracing::warn!("the watch of namespaces is interrupted: {e}"),
        }
    }

    fn on_budget(&mut self, event: Result<Event<Lean<PodDisruptionBudget>>, Error>) {
        match event {
            // Nobody fits for it who did not before.
            Ok(event) => drop(self.budgets.fold(&mut self.cluster.budgets, event, |budget| budget)),
            Err(e) => tracing::warn!("the watch of disruption budgets is interrupted: {e}"),
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
            self.withdraw(&uid, node_name(&pod));
            if self.cluster.set_pod(&pod) {
                self.queue.changed(Instant::now());
            }
        } else if !self.is_ours(&pod) || pod.metadata.deletion_timestamp.is_some() {
            self.queue.remove(&uid);
            self.withdraw(&uid, None);
        } else if !self.cluster.is_assumed(&uid) {
            if self.cluster.observe_nomination(&uid, &pod) {
                self.queue.changed(Instant::now());
            }
            self.queue.set(&uid, Arc::new(pod), Instant::now());
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let named = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).filter(|n| !n.is_empty());
        named.unwrap_or(DEFAULT_SCHEDULER) == self.options.scheduler_name
    }

    fn remove_pod(&mut self, uid: &str) {
        self.queue.remove(uid);
        self.writer.forget(uid);
        self.withdraw(uid, None);
        if self.cluster.remove_pod(uid) {
            self.queue.changed(Instant::now());
        }
    }
}

async fn until(wakeup: Option<Instant>) {
    match wakeup {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
