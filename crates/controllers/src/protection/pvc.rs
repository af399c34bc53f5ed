//! PersistentVolumeClaim protection: claims are kept while a scheduled Pod, terminal or not, uses them.

use super::{Event, Protected, ProtectionController};
use crate::{
    clients::Clients,
    names,
    pod_summary::{PodSummary, controller_of},
    worker,
};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, watch};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, Client, api::ListParams, runtime::watcher::Config};
use tokio_util::sync::CancellationToken;

struct PvcProtection {
    pods: SharedInformer<PodSummary>,
}

/// Returns whether the Pod uses the claim. Only scheduled Pods count: the kubelet starts no Pod whose claim is being
/// deleted.
fn uses(pod: &PodSummary, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let owner = controller_of(claim.metadata.owner_references.as_deref().unwrap_or_default());
    let is_its_own = || owner.is_some_and(|owner| owner.uid == pod.uid);
    pod.node.is_some()
        && (pod.claims.iter().any(|(_, used)| used == name)
            || (!pod.is_shut_down && pod.ephemeral_claims.iter().any(|made| made == name) && is_its_own()))
}

/// Returns the keys of claims that a Pod may use.
fn used_claims(pod: &PodSummary) -> Vec<String> {
    if pod.node.is_none() {
        return vec![];
    }
    let ephemeral_claims = pod.ephemeral_claims.iter().filter(|_| !pod.is_shut_down);
    pod.claims
        .iter()
        .map(|(_, claim)| claim)
        .chain(ephemeral_claims)
        .map(|claim| format!("{}/{claim}", pod.namespace))
        .collect()
}

/// Returns the keys of claims that a Pod no longer uses.
fn released(seen: &CacheEvent<PodSummary>) -> Option<Vec<String>> {
    let CacheEvent::Changed { before, after } = seen else { return None };
    let still = after.as_ref().map(|pod| used_claims(pod)).unwrap_or_default();
    let before = before.as_ref().map(|pod| used_claims(pod)).unwrap_or_default();
    Some(before.into_iter().filter(|claim| !still.contains(claim)).collect())
}

impl Protected for PvcProtection {
    type Object = PersistentVolumeClaim;

    const CONTROLLER: &'static str = names::PERSISTENT_VOLUME_CLAIM_PROTECTION;

    const FINALIZER: &'static str = "kubernetes.io/pvc-protection";

    fn api(client: Client, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(client, namespace)
    }

    async fn is_used(&self, client: &Client, claim: &PersistentVolumeClaim) -> Result<bool, kube::Error> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        if self.pods.in_namespace(namespace).iter().any(|pod| uses(pod, claim)) {
            return Ok(true);
        }
        // The informer may not have observed a new Pod yet.
        let all = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
        Ok(all.items.into_iter().any(|pod| uses(&PodSummary::from_pod(pod), claim)))
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    pods: SharedInformer<PodSummary>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let claims = watch(Api::all(clients.shared()), Config::default()).map(Event::Object);
    let released = pods.subscribe().map(|seen| released(&seen).map_or(Event::All, Event::Released));
    let events = stream::select(claims, released).boxed();
    worker::run(
        ProtectionController::new(clients.for_service_account("pvc-protection-controller"), PvcProtection { pods }),
        events,
        stop,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn pod(change: &Value) -> PodSummary {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "x", "uid": "1"},
            "spec": {"nodeName": "n", "containers": [], "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "b", "ephemeral": {}}]},
        });
        for (path, value) in change.as_object().unwrap() {
            let (part, field) = path.split_once('.').unwrap();
            pod[part][field] = value.clone();
        }
        PodSummary::from_pod(serde_json::from_value(pod).unwrap())
    }

    #[track_caller]
    fn check(change: Value, claim: &str, owner: &str, expected: bool) {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true});
        let claim = json!({"metadata": {"name": claim, "namespace": "x", "ownerReferences": [owner]}});
        assert_eq!(uses(&pod(&change), &serde_json::from_value(claim).unwrap()), expected, "{change}");
    }

    #[test]
    fn scheduled_pod_uses_its_claims() {
        let gone =
            json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z", "metadata.deletionGracePeriodSeconds": 0});
        check(json!({}), "c", "-", true);
        check(json!({}), "other", "-", false);
        check(json!({"spec.nodeName": ""}), "c", "-", false);
        check(json!({"status.phase": "Succeeded"}), "c", "-", true);
        check(gone.clone(), "c", "-", true);
        // The claim of an ephemeral volume counts until the kubelet is done with the Pod, and only for its own Pod.
        check(json!({}), "p-b", "1", true);
        check(json!({}), "p-b", "2", false);
        check(gone, "p-b", "1", false);
    }

    #[test]
    fn released_claims_of_a_pod_are_returned() {
        let one = |before: Option<Value>, after: Option<Value>| {
            let pod = |change: Value| Arc::new(pod(&change));
            released(&CacheEvent::Changed { before: before.map(pod), after: after.map(pod) }).unwrap()
        };
        assert_eq!(one(Some(json!({})), None), ["x/c", "x/p-b"]);
        assert_eq!(one(Some(json!({})), Some(json!({"status.phase": "Failed"}))), [""; 0]);
        assert_eq!(one(None, Some(json!({}))), [""; 0]);
        assert_eq!(one(Some(json!({"spec.nodeName": ""})), None), [""; 0]);
        let gone =
            json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z", "metadata.deletionGracePeriodSeconds": 0});
        assert_eq!(one(Some(json!({})), Some(gone)), ["x/p-b"]);
    }
}
