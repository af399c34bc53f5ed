//! Pod garbage collector: deletes terminating Pods without a node, terminated Pods beyond a threshold, Pods of
//! deleted nodes, and terminating Pods of nodes that are out of service (`pkg/controller/podgc`).
//!
//! Upstream runs every 20 s; here each rule is enqueued by the changes that it depends on.

use crate::{
    clients::Clients,
    names,
    pod_summary::PodSummary,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use api::object_key::object_key;
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, WatchEvent, watch};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::watcher::Config,
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time for which a node must be missing before its Pods are orphans (`quarantineTime`).
const QUARANTINE: Duration = Duration::from_secs(40);

const UNSCHEDULED: &str = "unscheduled terminating Pods";
const TERMINATED: &str = "ended Pods";
const ORPHANS: &str = "Pods of nodes that are gone or out of service";

struct PodGc {
    client: Client,
    threshold: usize,
    pods: SharedInformer<PodSummary>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The nodes, and whether each has the out-of-service taint.
    nodes: HashMap<String, bool>,
    nodes_listed: bool,
    /// Unknown nodes that Pods are bound to, and since when.
    missing: HashMap<String, Instant>,
}

enum Event {
    Pod(CacheEvent<PodSummary>),
    Node(WatchEvent<Node>),
}

impl PodGc {
    fn on_pod(&self, seen: &CacheEvent<PodSummary>) -> Vec<String> {
        let CacheEvent::Changed { after, .. } = seen else {
            return [UNSCHEDULED, TERMINATED, ORPHANS].map(str::to_owned).to_vec();
        };
        let Some(pod) = after else { return vec![] };
        let orphaned = pod.node.as_ref().is_some_and(|node| match self.state.lock().nodes.get(node) {
            Some(out_of_service) => *out_of_service && pod.terminating,
            None => true,
        });
        let rules = [
            (UNSCHEDULED, pod.terminating && pod.node.is_none()),
            (ORPHANS, orphaned),
            (TERMINATED, pod.is_terminal() && self.excess() > 0),
        ];
        rules.into_iter().filter(|(_, holds)| *holds).map(|(rule, _)| rule.to_owned()).collect()
    }

    fn on_node(&self, change: WatchEvent<Node>) -> Vec<String> {
        let mut state = self.state.lock();
        match change {
            WatchEvent::Applied(node) => {
                let name = object_key(&node.metadata);
                state.missing.remove(&name);
                let out_of_service = is_out_of_service(&node);
                state.nodes.insert(name, out_of_service);
                if out_of_service { vec![ORPHANS.to_owned()] } else { vec![] }
            }
            WatchEvent::Deleted(node) => {
                state.nodes.remove(&object_key(&node.metadata));
                vec![ORPHANS.to_owned()]
            }
            WatchEvent::Listed(names) => {
                state.nodes.retain(|name, _| names.contains(name));
                state.nodes_listed = true;
                vec![ORPHANS.to_owned()]
            }
        }
    }

    fn excess(&self) -> usize {
        // Count terminated Pods only if there are more Pods than the threshold.
        if self.threshold == 0 || self.pods.len() <= self.threshold {
            return 0;
        }
        self.pods.all().iter().filter(|pod| pod.is_terminal()).count().saturating_sub(self.threshold)
    }

    async fn gc_terminated(&self) -> Result<(), kube::Error> {
        let mut terminated: Vec<Arc<PodSummary>> =
            self.pods.all().into_iter().filter(|pod| pod.is_terminal()).collect();
        terminated.sort_by(|a, b| {
            let order = |pod: &PodSummary| (!pod.evicted, pod.created);
            order(a).cmp(&order(b)).then_with(|| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)))
        });
        for pod in terminated.into_iter().take(self.excess()) {
            self.fail_and_delete(&pod, false).await?;
        }
        Ok(())
    }

    async fn gc_unscheduled_terminating(&self) -> Result<(), kube::Error> {
        for pod in self.pods.all().into_iter().filter(|p| p.terminating && p.node.is_none()) {
            self.fail_and_delete(&pod, false).await?;
        }
        Ok(())
    }

    /// Deletes orphaned Pods. Returns the time until the quarantine of the next node ends.
    async fn gc_orphaned(&self, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let pods = self.pods.all();
        let (out_of_service, unknown) = {
            let mut state = self.state.lock();
            if !state.nodes_listed {
                return Ok(None);
            }
            let terminating = pods.iter().filter(|p| p.terminating);
            let is_out = |node: &String| state.nodes.get(node) == Some(&true);
            let out: Vec<_> = terminating.filter(|pod| pod.node.as_ref().is_some_and(is_out)).collect();
            (out, state.quarantine(&pods, now))
        };
        for pod in out_of_service {
            self.fail_and_delete(pod, false).await?;
        }
        let mut next = None;
        for (node, left) in unknown {
            if !left.is_zero() {
                next = Some(next.map_or(left, |n: Duration| n.min(left)));
            } else if Api::<Node>::all(self.client.clone()).get_opt(&node).await?.is_none() {
                for pod in pods.iter().filter(|p| p.node.as_ref() == Some(&node)) {
                    self.fail_and_delete(pod, true).await?;
                }
            }
        }
        Ok(next)
    }

    /// Deletes a Pod. A Pod that is not terminal is marked as failed first, for controllers that count it.
    async fn fail_and_delete(&self, pod: &PodSummary, orphan: bool) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let mut status = json!({});
        if !pod.is_terminal() {
            status["phase"] = "Failed".into();
            if orphan {
                let reason = ("DeletionByPodGC", "PodGC: node no longer exists");
                status["conditions"] = json!([pod.disruption_target(Some(reason))]);
            }
            let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid }, "status": status }));
            ignore_not_found_or_conflict(api.patch_status(&pod.name, &PatchParams::default(), &patch).await)?;
        }
        tracing::info!(namespace = pod.namespace, name = pod.name, orphan, "deleting pod");
        let at_once = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
            ..Default::default()
        };
        ignore_not_found_or_conflict(api.delete(&pod.name, &at_once).await)
    }
}

impl State {
    /// Returns the unknown nodes that Pods are bound to, and for how long their Pods are kept.
    fn quarantine(&mut self, pods: &[Arc<PodSummary>], now: Instant) -> Vec<(String, Duration)> {
        let named: BTreeSet<String> = pods.iter().filter_map(|p| p.node.clone()).collect();
        let unknown: Vec<String> = named.into_iter().filter(|n| !self.nodes.contains_key(n)).collect();
        self.missing.retain(|node, _| unknown.contains(node));
        let left = unknown.into_iter().map(|node| {
            let since = *self.missing.entry(node.clone()).or_insert(now);
            (node, QUARANTINE.saturating_sub(now.saturating_duration_since(since)))
        });
        left.collect()
    }
}

impl Controller for PodGc {
    type Event = Event;

    const NAME: &'static str = names::POD_GARBAGE_COLLECTOR;

    fn observe(&self, event: Event, _: Instant) -> Vec<String> {
        match event {
            Event::Pod(seen) => self.on_pod(&seen),
            Event::Node(change) => self.on_node(change),
        }
    }

    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        match key {
            UNSCHEDULED => self.gc_unscheduled_terminating().await.map(|()| None),
            TERMINATED => self.gc_terminated().await.map(|()| None),
            _ => self.gc_orphaned(now).await,
        }
    }
}

fn is_out_of_service(node: &Node) -> bool {
    let ready = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let ready = ready.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let mut taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    !ready && taints.any(|t| t.key == "node.kubernetes.io/out-of-service")
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    pods: SharedInformer<PodSummary>,
    threshold: usize,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let nodes = watch(Api::all(clients.shared()), Config::default()).map(Event::Node);
    let events = stream::select(pods.subscribe().map(Event::Pod), nodes).boxed();
    let client = clients.for_service_account("pod-garbage-collector");
    worker::run(PodGc { client, threshold, pods, state: Mutex::default() }, events, stop)
}
