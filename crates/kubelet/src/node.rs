//! Node registration, Lease renewal and status updates.

use crate::{Shared, csi_node, deadline::within_deadline, node_status};
use futures::stream::{BoxStream, StreamExt};
use informer::{WatchEvent, watch};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher::Config,
};
use lifecycle::EventKind;
use node_status::{Extended, NodeState};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Delay before a failed registration is retried, and between status checks of a node that is not ready.
const RETRY: Duration = Duration::from_millis(200);

pub(crate) async fn run(shared: &Shared) {
    while shared.options.config.register_node && !shared.stop.is_cancelled() {
        match register(shared).await {
            Ok(()) => break,
            Err(error) => tracing::warn!(%error, "failed to register the node, retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
    shared.recorder.record_node(EventKind::Normal, "Starting", "Starting kubelet.".to_owned());
    if shared.cgroups.enforces_node_allocatable() {
        let message = "Updated Node Allocatable limit across pods".to_owned();
        shared.recorder.record_node(EventKind::Normal, "NodeAllocatableEnforced", message);
    }
    // Boxed: the one-time future must not enlarge the long-lived ones.
    tokio::join!(keep_alive(shared), report(shared), Box::pin(csi_node::create(shared)));
}

async fn register(shared: &Shared) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(shared.client.clone());
    let name = &shared.options.node_name;
    let arch = node_status::architecture();
    let labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": arch,
    });
    let mut node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}});
    if let Some(cidr) = &shared.options.pod_cidr {
        node["spec"] = json!({"podCIDR": cidr, "podCIDRs": [cidr]});
    }
    let taints = &shared.options.config.register_with_taints;
    if !taints.is_empty() {
        node["spec"]["taints"] = json!(taints);
    }
    let node: Node = decode::from_value(&node).map_err(kube::Error::SerdeError)?;
    match within_deadline(api.create(&PostParams::default(), &node)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
        Err(e) => Err(e),
    }
}

/// Writes the node's status when it changes, and unchanged every `nodeStatusReportFrequency`.
async fn report(shared: &Shared) {
    let config = &shared.options.config;
    let mut shown: Option<(NodeState, Instant)> = None;
    let mut shutdown = shared.shutdown.changes();
    let mut nodes = watch_node(shared);
    let (mut extended, mut cordoned) = (Extended::new(), false);
    loop {
        let state = NodeState::observe(shared, extended.clone()).await;
        let fresh = shown
            .as_ref()
            .is_some_and(|(known, at)| *known == state && at.elapsed() < config.node_status_report_frequency);
        let pause = if state.runs() { config.node_status_update_frequency } else { RETRY };
        if !fresh {
            match state.write(shared).await {
                Ok(()) => {
                    shared.ready_reported.send_replace(state.is_ready());
                    shown = Some((state, Instant::now()));
                }
                Err(error) => tracing::warn!(%error, "failed to update the node's status"),
            }
        }
        // Pressure conditions, extended resources and a shutdown are reported at once.
        let news = async {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shared.evictions.changed.notified() => {}
                _ = shutdown.changed() => {}
                other = changed(shared, &mut nodes, &extended, &mut cordoned) => extended = other,
            }
        };
        if shared.stop.run_until_cancelled(news).await.is_none() {
            return;
        }
    }
}

/// Watches the node's object.
fn watch_node(shared: &Shared) -> BoxStream<'static, Node> {
    let api: Api<Node> = Api::all(shared.client.clone());
    let config = Config::default().fields(&format!("metadata.name={}", shared.options.node_name));
    let applied = watch(api, config).filter_map(|event| {
        std::future::ready(match event {
            WatchEvent::Applied(node) => Some(*node),
            WatchEvent::Deleted(_) | WatchEvent::Listed(_) => None,
        })
    });
    applied.boxed()
}

/// Waits until the node's extended resources differ from these. Records Events when it is cordoned or uncordoned.
async fn changed(
    shared: &Shared,
    nodes: &mut BoxStream<'static, Node>,
    known: &Extended,
    cordoned: &mut bool,
) -> Extended {
    while let Some(node) = nodes.next().await {
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
        if std::mem::replace(cordoned, is_cordoned) != is_cordoned {
            let reason = if is_cordoned { "NodeNotSchedulable" } else { "NodeSchedulable" };
            let message = format!("Node {} status is now: {reason}", shared.options.node_name);
            shared.recorder.record_node(EventKind::Normal, reason, message);
        }
        let status = node.status.as_ref().map(node_status::extended).unwrap_or_default();
        if status != *known {
            return status;
        }
    }
    std::future::pending().await
}

/// Renews the Lease after a quarter of its duration, as upstream does.
async fn keep_alive(shared: &Shared) {
    let pause = Duration::from_secs(shared.options.config.node_lease_duration_seconds.into()) / 4;
    loop {
        if let Err(error) = renew(shared).await {
            tracing::warn!(%error, "failed to renew the node's Lease");
        }
        if shared.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

async fn renew(shared: &Shared) -> Result<(), kube::Error> {
    let api: Api<Lease> = Api::namespaced(shared.client.clone(), "kube-node-lease");
    let (name, seconds) = (&shared.options.node_name, shared.options.config.node_lease_duration_seconds);
    let spec = json!({
        "holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": MicroTime(shared.now()),
    });
    let patch = json!({"spec": spec});
    // The Lease is owned by the node, so that it is garbage-collected with it, as upstream's.
    let owner = async || {
        let node = within_deadline(Api::<Node>::all(shared.client.clone()).get(name)).await?;
        Ok::<_, kube::Error>(json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}]))
    };
    match within_deadline(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
        Err(kube::Error::Api(e)) if e.code == 404 => {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "ownerReferences": owner().await?}, "spec": spec});
            let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            within_deadline(api.create(&PostParams::default(), &lease)).await.map(drop)
        }
        other => other.map(drop),
    }
}
