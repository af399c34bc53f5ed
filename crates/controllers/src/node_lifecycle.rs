//! Node lifecycle controller: monitors heartbeats of nodes, and keeps their taints in line with their conditions
//! (`pkg/controller/nodelifecycle`). `taint_eviction` evicts Pods by these taints.
//!
//! A heartbeat is a change of the node's Lease or `Ready` condition, timed when it is observed: clocks of different
//! machines are never compared.

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    names,
    node_condition_taints::{condition, desired_taints},
    worker::{self, Controller, is_code},
};
use api::object_key::object_key;
use futures::stream::{self, StreamExt};
use informer::{WatchEvent, watch};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, NodeCondition, ObjectReference, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams},
    runtime::watcher::Config,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time without heartbeat after which a node is unknown (`--node-monitor-grace-period`).
const NODE_MONITOR_GRACE_PERIOD: Duration = Duration::from_secs(50);
/// The same for a node that has never posted a status (`--node-startup-grace-period`).
const NODE_STARTUP_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Namespace of node Leases.
const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// Conditions that become unknown without heartbeats.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Labels and their deprecated names.
const DEPRECATED_LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

struct NodeLifecycle {
    client: Client,
    recorder: EventRecorder,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: HashMap<String, Arc<Node>>,
    /// UIDs of the nodes for which `RegisteredNode` was recorded.
    registered: HashMap<String, String>,
    heartbeats: HashMap<String, Heartbeat>,
}

/// The last heartbeat.
#[derive(Debug, Clone, Default, PartialEq)]
struct Heartbeat {
    at: Option<Instant>,
    lease: Option<Timestamp>,
    ready: Option<Timestamp>,
}

enum Event {
    Node(WatchEvent<Node>),
    Lease(WatchEvent<Lease>),
}

impl State {
    fn on_node(&mut self, change: WatchEvent<Node>, now: Instant) -> Vec<String> {
        match change {
            WatchEvent::Applied(mut node) => {
                let name = object_key(&node.metadata);
                let ready_heartbeat = ready(&node).and_then(|c| c.last_heartbeat_time.as_ref()).map(|t| t.0);
                let heartbeat = self.heartbeats.entry(name.clone()).or_default();
                // The `Unknown` status that this controller wrote is not a heartbeat.
                if heartbeat.at.is_none()
                    || (heartbeat.ready != ready_heartbeat && condition(&node, "Ready") != Some("Unknown"))
                {
                    heartbeat.at = Some(now);
                    heartbeat.ready = ready_heartbeat;
                }
                // The list of images is large and not used here.
                if let Some(status) = node.status.as_mut() {
                    status.images = None;
                }
                node.metadata.managed_fields = None;
                self.nodes.insert(name.clone(), Arc::new(*node));
                vec![name]
            }
            WatchEvent::Deleted(node) => {
                let name = object_key(&node.metadata);
                self.nodes.remove(&name);
                self.heartbeats.remove(&name);
                vec![name]
            }
            WatchEvent::Listed(names) => {
                let gone = self.nodes.keys().filter(|name| !names.contains(*name)).cloned().collect();
                self.nodes.retain(|name, _| names.contains(name));
                self.heartbeats.retain(|name, _| names.contains(name));
                gone
            }
        }
    }

    /// Returns whether any node is ready. If none is, the network is at fault, or this is the only node (upstream's
    /// master disruption mode).
    fn any_is_ready(&self) -> bool {
        self.nodes.values().any(|node| condition(node, "Ready") == Some("True"))
    }

    /// Records the heartbeat. It enqueues no key: the node is requeued for the end of its grace period.
    fn on_lease(&mut self, change: WatchEvent<Lease>, now: Instant) {
        let WatchEvent::Applied(lease) = change else {
            return;
        };
        let renewed = lease.spec.and_then(|s| s.renew_time).map(|t| t.0);
        let Some(name) = lease.metadata.name else {
            return;
        };
        if let Some(heartbeat) = self.heartbeats.get_mut(&name)
            && heartbeat.lease != renewed
        {
            heartbeat.lease = renewed;
            heartbeat.at = Some(now);
        }
    }
}

impl NodeLifecycle {
    async fn mark_node_unknown(&self, node: &Node) -> Result<(), kube::Error> {
        let name = object_key(&node.metadata);
        tracing::warn!(node = name, grace = ?NODE_MONITOR_GRACE_PERIOD, "no heartbeat within the grace period, marking node unknown");
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Strategic(json!({ "status": { "conditions": unknown_conditions(node, Timestamp::now()) } }));
        api.patch_status(&name, &PatchParams::default(), &patch).await?;
        if condition(node, "Ready") == Some("True") {
            let uid = node.metadata.uid.as_deref().unwrap_or_default();
            let message = format!("Node {name} status is now: NodeNotReady");
            self.recorder.record(&node_reference(&name, uid), false, "NodeNotReady", &message).await;
        }
        self.mark_pods_not_ready(&name).await
    }

    /// Records `RegisteredNode` and `RemovingNode` once for each node.
    async fn record_registration_events(&self, name: &str) {
        let (uid, known) = {
            let state = self.state.lock();
            let uid = state.nodes.get(name).map(|node| node.metadata.uid.clone().unwrap_or_default());
            (uid, state.registered.get(name).cloned())
        };
        if known == uid {
            return;
        }
        if let Some(old) = known {
            self.state.lock().registered.remove(name);
            let message = format!("Removing Node {name} from Controller");
            self.recorder.record(&node_reference(name, &old), false, "RemovingNode", &message).await;
        }
        if let Some(uid) = uid {
            let message = format!("Registered Node {name} in Controller");
            self.recorder.record(&node_reference(name, &uid), false, "RegisteredNode", &message).await;
            self.state.lock().registered.insert(name.to_owned(), uid);
        }
    }

    /// Sets `Ready` of the node's Pods to false, because their state is unknown (`MarkPodsNotReady`).
    async fn mark_pods_not_ready(&self, node: &str) -> Result<(), kube::Error> {
        let all: Api<Pod> = Api::all(self.client.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
        for pod in all.list(&here).await?.items {
            let bound_here = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node);
            let mut conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
            let Some(ready) = conditions.find(|c| c.type_ == "Ready" && c.status == "True" && bound_here) else {
                continue;
            };
            let mut ready = ready.clone();
            ready.status = "False".into();
            ready.last_transition_time = Some(Time(Timestamp::now()));
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""));
            let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "conditions": [ready] } });
            match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
                Err(e) if !is_code(&e, 404) && !is_code(&e, 409) => return Err(e),
                _ => {}
            }
            self.recorder.record(&pod.object_ref(&()), true, "NodeNotReady", "Node is not ready").await;
        }
        Ok(())
    }

    async fn reconcile_node_labels(&self, node: &Node) -> Result<(), kube::Error> {
        let labels = deprecated_labels(node);
        if labels.is_empty() {
            return Ok(());
        }
        self.patch(node, json!({ "metadata": { "uid": node.metadata.uid, "labels": labels } })).await
    }

    async fn reconcile_taints(&self, node: &Node) -> Result<(), kube::Error> {
        let any_is_ready = self.state.lock().any_is_ready();
        let Some(taints) = desired_taints(node, any_is_ready, Timestamp::now()) else {
            return Ok(());
        };
        let taints = if taints.is_empty() { json!(null) } else { json!(taints) };
        // The patch replaces the list, so the resource version guards concurrent changes.
        let version = json!({ "resourceVersion": node.metadata.resource_version });
        self.patch(node, json!({ "metadata": version, "spec": { "taints": taints } })).await
    }

    async fn patch(&self, node: &Node, patch: Value) -> Result<(), kube::Error> {
        let api: Api<Node> = Api::all(self.client.clone());
        match api.patch(&object_key(&node.metadata), &PatchParams::default(), &Patch::Merge(patch)).await {
            // The watch delivers the newer node and enqueues it again.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Controller for NodeLifecycle {
    type Event = Event;

    const NAME: &'static str = names::NODE_LIFECYCLE;
    const WORKERS: usize = 8;

    fn observe(&self, event: Event, now: Instant) -> Vec<String> {
        let mut state = self.state.lock();
        match event {
            Event::Node(change) => {
                let before = state.any_is_ready();
                let keys = state.on_node(change, now);
                // The first ready node, or the loss of the last one, affects the taints of all.
                if before == state.any_is_ready() { keys } else { state.nodes.keys().cloned().collect() }
            }
            Event::Lease(change) => {
                state.on_lease(change, now);
                vec![]
            }
        }
    }

    /// Syncs a node: its taints, labels and conditions (`monitorNodeHealth`, `doNodeProcessingPassWorker`).
    async fn reconcile(&self, name: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        self.record_registration_events(name).await;
        let Some(node) = self.state.lock().nodes.get(name).cloned() else {
            return Ok(None);
        };
        self.reconcile_taints(&node).await?;
        self.reconcile_node_labels(&node).await?;
        let status = condition(&node, "Ready");
        if status == Some("Unknown") {
            // The kubelet's next status ends this state.
            return Ok(None);
        }
        let grace = if status.is_none() { NODE_STARTUP_GRACE_PERIOD } else { NODE_MONITOR_GRACE_PERIOD };
        let heartbeat = self.state.lock().heartbeats.get(name).and_then(|b| b.at).unwrap_or(now);
        let left = grace.saturating_sub(now.saturating_duration_since(heartbeat));
        if left.is_zero() {
            self.mark_node_unknown(&node).await?;
            return Ok(None);
        }
        Ok(Some(left))
    }
}

/// Returns the reference by which Events name a node.
fn node_reference(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == "Ready")
}

/// Returns the deprecated labels that differ from the current ones (`reconcileNodeLabels`).
fn deprecated_labels(node: &Node) -> BTreeMap<String, String> {
    let labels = node.metadata.labels.iter().flatten();
    let named = labels.filter_map(|(name, value)| {
        let old = DEPRECATED_LABELS.iter().find(|(new, _)| name == new)?.1;
        Some((old.to_owned(), value.clone()))
    });
    named.filter(|(old, value)| node.metadata.labels.as_ref().and_then(|l| l.get(old)) != Some(value)).collect()
}

/// Returns the conditions of a node without heartbeats.
fn unknown_conditions(node: &Node, now: Timestamp) -> Vec<NodeCondition> {
    let known: Vec<&NodeCondition> = node.status.iter().flat_map(|s| s.conditions.iter().flatten()).collect();
    let unknown = |name: &str| {
        let old_condition = known.iter().find(|c| c.type_ == name);
        let (reason, message) = match old_condition {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        NodeCondition {
            type_: name.into(),
            status: "Unknown".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: old_condition.and_then(|c| c.last_heartbeat_time.clone()),
            last_transition_time: Some(Time(now)),
        }
    };
    CONDITIONS.into_iter().map(unknown).collect()
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let nodes = watch(Api::all(clients.shared()), Config::default()).map(Event::Node);
    let leases = watch(Api::namespaced(clients.shared(), NODE_LEASE_NAMESPACE), Config::default()).map(Event::Lease);
    let client = clients.for_service_account("node-controller");
    let recorder = EventRecorder::new(client.clone(), "node-controller");
    let controller = NodeLifecycle { client, recorder, state: Mutex::default() };
    worker::run(controller, stream::select(nodes, leases).boxed(), stop).await;
}
