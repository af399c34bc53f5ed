//! Taint eviction controller: deletes Pods from nodes with NoExecute taints that they do not tolerate, or no longer
//! tolerate (`pkg/controller/tainteviction`).
//!
//! As upstream, the toleration time starts when this controller observes the Pod and the taint.

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    names,
    pod_summary::PodSummary,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use api::{object_key::object_key, taint};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, WatchEvent, watch};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::watcher::Config,
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "taint-eviction-controller";

struct TaintEviction {
    client: Client,
    recorder: EventRecorder,
    pods: SharedInformer<PodSummary>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The NoExecute taints of nodes, without nodes that have none.
    taints: HashMap<String, Vec<Taint>>,
    /// Pods with a pending eviction, and since when.
    scheduled: HashMap<String, Instant>,
    /// UIDs of the Pods that were evicted: later events of the informer are outdated.
    deleted: HashMap<String, String>,
}

enum Event {
    Pod(CacheEvent<PodSummary>),
    Node(WatchEvent<Node>),
}

/// Returns how long the taints are tolerated, `None` for ever (`getMinTolerationTime`).
fn min_toleration_time(taints: &[Taint], tolerations: &[Toleration]) -> Option<Duration> {
    let mut shortest = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|t| taint::tolerates(t, taint)) else {
            return Some(Duration::ZERO);
        };
        let seconds = toleration.toleration_seconds.map(|s| Duration::from_secs(u64::try_from(s).unwrap_or(0)));
        shortest = [shortest, seconds].into_iter().flatten().min();
    }
    shortest
}

impl TaintEviction {
    fn on_pod(&self, seen: &CacheEvent<PodSummary>) -> Vec<String> {
        let CacheEvent::Changed { before, after } = seen else {
            let there: HashSet<String> = self.pods.keys().into_iter().collect();
            let mut state = self.state.lock();
            state.scheduled.retain(|key, _| there.contains(key));
            state.deleted.retain(|key, _| there.contains(key));
            let tainted = state.taints.keys().cloned().collect::<Vec<_>>();
            drop(state);
            return tainted.iter().flat_map(|node| self.pods_on(node)).collect();
        };
        let mut state = self.state.lock();
        let Some(pod) = after.as_ref().filter(|pod| pod.node.is_some() && !pod.terminating) else {
            before.iter().for_each(|pod| state.cancel(&informer::key(pod.as_ref())));
            return vec![];
        };
        let name = informer::key(pod.as_ref());
        let tainted = pod.node.as_ref().is_some_and(|node| state.taints.contains_key(node));
        let affected = tainted || state.scheduled.contains_key(&name);
        if affected && state.deleted.get(&name) != Some(&pod.uid) { vec![name] } else { vec![] }
    }

    /// Returns the keys of the Pods on a node.
    fn pods_on(&self, node: &str) -> Vec<String> {
        let all = self.pods.all().into_iter().filter(|pod| pod.node.as_deref() == Some(node));
        all.map(|pod| informer::key(pod.as_ref())).collect()
    }

    fn on_node(&self, change: WatchEvent<Node>) -> Vec<String> {
        match change {
            WatchEvent::Applied(node) => {
                let all = node.spec.and_then(|s| s.taints).unwrap_or_default();
                self.set_taints(
                    &object_key(&node.metadata),
                    all.into_iter().filter(|t| t.effect == "NoExecute").collect(),
                )
            }
            // The Pod garbage collector deletes its Pods.
            WatchEvent::Deleted(node) => self.set_taints(&object_key(&node.metadata), vec![]),
            WatchEvent::Listed(names) => {
                let known = self.state.lock().taints.keys().cloned().collect::<Vec<_>>();
                let gone = known.iter().filter(|name| !names.contains(*name));
                gone.flat_map(|name| self.set_taints(name, vec![])).collect()
            }
        }
    }

    /// Replaces the taints of a node. Returns the keys of affected Pods.
    fn set_taints(&self, node: &str, taints: Vec<Taint>) -> Vec<String> {
        let mut state = self.state.lock();
        let before = if taints.is_empty() {
            state.taints.remove(node)
        } else {
            state.taints.insert(node.to_owned(), taints.clone())
        };
        drop(state);
        if before.unwrap_or_default() == taints {
            return vec![];
        }
        self.pods_on(node)
    }

    /// Evicts a Pod. The condition is written first, so that observers see the reason.
    async fn evict(&self, pod: &PodSummary) -> Result<(), kube::Error> {
        let (name, key) = (pod.name.as_str(), informer::key(pod));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        self.record(pod, &format!("Marking for deletion Pod {key}")).await;
        tracing::info!(pod = key, node = pod.node, "evicting pod for an untolerated taint");
        let reason = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        let condition = pod.disruption_target(Some(reason));
        let status = json!({ "metadata": { "uid": pod.uid }, "status": { "conditions": [condition] } });
        ignore_not_found_or_conflict(api.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await)?;
        let same = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        ignore_not_found_or_conflict(api.delete(name, &params).await)
    }

    async fn record(&self, pod: &PodSummary, message: &str) {
        self.recorder.record(&pod.reference(), false, "TaintManagerEviction", message).await;
    }
}

/// What to do with a Pod.
enum EvictionStep {
    Keep,
    /// Keep it: the pending eviction is cancelled.
    Cancel,
    Wait(Duration),
    Evict,
}

impl State {
    fn cancel(&mut self, pod: &str) {
        self.scheduled.remove(pod);
        self.deleted.remove(pod);
    }

    fn next(&mut self, name: &str, pod: &PodSummary, now: Instant) -> EvictionStep {
        if self.deleted.get(name) == Some(&pod.uid) {
            return EvictionStep::Keep;
        }
        let taints = pod.node.as_ref().and_then(|node| self.taints.get(node)).map(Vec::as_slice).unwrap_or_default();
        let Some(min_toleration_time) = min_toleration_time(taints, &pod.tolerations) else {
            return if self.scheduled.remove(name).is_some() { EvictionStep::Cancel } else { EvictionStep::Keep };
        };
        let since = *self.scheduled.entry(name.to_owned()).or_insert(now);
        let left = min_toleration_time.saturating_sub(now.saturating_duration_since(since));
        if left.is_zero() { EvictionStep::Evict } else { EvictionStep::Wait(left) }
    }
}

impl Controller for TaintEviction {
    type Event = Event;

    const NAME: &'static str = names::TAINT_EVICTION;
    const WORKERS: usize = 8;

    fn observe(&self, event: Event, _: Instant) -> Vec<String> {
        match event {
            Event::Pod(seen) => self.on_pod(&seen),
            Event::Node(change) => self.on_node(change),
        }
    }

    async fn reconcile(&self, name: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(pod) = self.pods.get_by_key(name).filter(|pod| !pod.terminating) else {
            self.state.lock().cancel(name);
            return Ok(None);
        };
        let next = self.state.lock().next(name, &pod, now);
        match next {
            EvictionStep::Keep => Ok(None),
            EvictionStep::Cancel => {
                self.record(&pod, &format!("Cancelling deletion of Pod {name}")).await;
                Ok(None)
            }
            EvictionStep::Wait(left) => Ok(Some(left)),
            EvictionStep::Evict => {
                self.evict(&pod).await?;
                let mut state = self.state.lock();
                state.cancel(name);
                // The informer may have shown the deletion by now.
                if self.pods.get_by_key(name).is_some_and(|now| now.uid == pod.uid && !now.terminating) {
                    state.deleted.insert(name.to_owned(), pod.uid.clone());
                }
                Ok(None)
            }
        }
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    pods: SharedInformer<PodSummary>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let nodes = watch(Api::all(clients.shared()), Config::default()).map(Event::Node);
    let events = stream::select(pods.subscribe().map(Event::Pod), nodes).boxed();
    // As upstream, it uses the identity of the node lifecycle controller.
    let client = clients.for_service_account("node-controller");
    let controller = TaintEviction {
        recorder: EventRecorder::new(client.clone(), COMPONENT),
        client,
        pods,
        state: Mutex::default(),
    };
    worker::run(controller, events, stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Taints are keys, tolerations `key` or `key:seconds`; `*` tolerates everything.
    #[track_caller]
    fn check(taints: &[&str], tolerations: &[&str], expected: Option<u64>) {
        let taint = |key: &&str| json!({ "key": key, "effect": "NoExecute" });
        let toleration = |text: &&str| {
            let (key, seconds) = text
                .split_once(':')
                .map_or((*text, Value::Null), |(key, s)| (key, json!(s.parse::<i64>().expect("seconds"))));
            let key = if key == "*" { Value::Null } else { json!(key) };
            json!({ "key": key, "operator": "Exists", "tolerationSeconds": seconds })
        };
        let taints: Vec<Taint> = serde_json::from_value(taints.iter().map(taint).collect()).expect("taints");
        let tolerations: Vec<Toleration> =
            serde_json::from_value(tolerations.iter().map(toleration).collect()).expect("tolerations");
        assert_eq!(min_toleration_time(&taints, &tolerations), expected.map(Duration::from_secs));
    }

    #[test]
    fn minimum_toleration_time_applies() {
        check(&[], &[], None);
        check(&["a"], &[], Some(0));
        check(&["a"], &["b"], Some(0));
        check(&["a"], &["a"], None);
        check(&["a"], &["a:60"], Some(60));
        check(&["a", "b"], &["a:60", "b:30"], Some(30));
        check(&["a", "b"], &["a", "b:30"], Some(30));
        check(&["a", "b"], &["a:60"], Some(0));
        check(&["a"], &["a:-5"], Some(0));
        // The first matching toleration applies.
        check(&["a"], &["*", "a:60"], None);
        check(&["a"], &["a:60", "*"], Some(60));
    }
}
