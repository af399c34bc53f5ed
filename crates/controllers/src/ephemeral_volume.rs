//! Ephemeral volume controller: creates the claims of generic ephemeral volumes, owned by their Pods
//! (`pkg/controller/volume/ephemeral`, KEP-1698).

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    names,
    pod_control::error_message,
    pod_summary::PodSummary,
    worker::{self, Controller, is_code},
};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod, Volume},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Api, Client, Resource, ResourceExt, api::PostParams};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

enum Event {
    Pod(CacheEvent<PodSummary>),
    Claim(CacheEvent<PersistentVolumeClaim>),
}

/// Creates claims for Pods.
struct EphemeralVolumeController {
    client: Client,
    recorder: EventRecorder,
    pods: SharedInformer<PodSummary>,
    claims: SharedInformer<PersistentVolumeClaim>,
}

fn needs_claims(pod: &PodSummary) -> bool {
    pod.active && !pod.ephemeral_claims.is_empty()
}

impl EphemeralVolumeController {
    /// Returns the keys of the Pods that use a claim of this name.
    fn pods_of_claim(&self, claim: &PersistentVolumeClaim) -> Vec<String> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let pods = self.pods.in_namespace(&namespace).into_iter();
        pods.filter(|pod| needs_claims(pod) && pod.ephemeral_claims.contains(&name))
            .map(|pod| key(pod.as_ref()))
            .collect()
    }

    async fn create_claim(&self, pod: &Pod, volume: &Volume) -> Result<(), kube::Error> {
        let Some(claim) = claim(pod, volume) else { return Ok(()) };
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(known) = self.claims.get(&namespace, &claim.name_any()) {
            // A claim of another owner is not changed.
            if let Err(error) = api::persistent_volume_claim::check_owned_by_pod(&known, pod) {
                self.record_failure(pod, volume, &error.to_string()).await;
            }
            return Ok(());
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        match claims.create(&PostParams::default(), &claim).await {
            Err(e) if is_code(&e, 409) => Ok(()),
            Err(e) => {
                let message = format!("create PVC {}: {}", claim.name_any(), error_message(&e));
                self.record_failure(pod, volume, &message).await;
                Err(e)
            }
            Ok(_) => Ok(()),
        }
    }

    async fn record_failure(&self, pod: &Pod, volume: &Volume, text: &str) {
        let message = format!("ephemeral volume {}: {text}", volume.name);
        self.recorder.record(&pod.object_ref(&()), true, "FailedBinding", &message).await;
    }
}

/// Returns the claim of an ephemeral volume, `None` for other types.
fn claim(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.clone()?;
    let meta = template.metadata.unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: api::persistent_volume_claim::claim_name(pod.metadata.name.as_deref()?, volume),
            namespace: pod.metadata.namespace.clone(),
            annotations: meta.annotations,
            labels: meta.labels,
            owner_references: Some(vec![OwnerReference {
                block_owner_deletion: Some(true),
                ..pod.controller_owner_ref(&())?
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec),
        status: None,
    })
}

impl Controller for EphemeralVolumeController {
    type Event = Event;

    const NAME: &'static str = names::EPHEMERAL_VOLUME;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Pod(CacheEvent::Changed { after: Some(pod), .. }) if needs_claims(&pod) => vec![key(pod.as_ref())],
            Event::Claim(CacheEvent::Changed { before: Some(claim), after: None }) => self.pods_of_claim(&claim),
            Event::Pod(CacheEvent::Changed { .. }) | Event::Claim(CacheEvent::Changed { .. }) => vec![],
            Event::Pod(CacheEvent::Resync) | Event::Claim(CacheEvent::Resync) => {
                let pods = self.pods.all().into_iter().filter(|pod| needs_claims(pod));
                pods.map(|pod| key(pod.as_ref())).collect()
            }
        }
    }

    async fn reconcile(&self, key: &str, _now: Instant) -> Result<Option<Duration>, kube::Error> {
        if !(self.pods.has_synced() && self.claims.has_synced()) {
            return Ok(None);
        }
        let Some(summary) = self.pods.get_by_key(key).filter(|pod| needs_claims(pod)) else { return Ok(None) };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &summary.namespace);
        let Some(pod) = pods.get_opt(&summary.name).await? else { return Ok(None) };
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            self.create_claim(&pod, volume).await?;
        }
        Ok(None)
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    pods: SharedInformer<PodSummary>,
    claims: SharedInformer<PersistentVolumeClaim>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = stream::select(pods.subscribe().map(Event::Pod), claims.subscribe().map(Event::Claim)).boxed();
    let client = clients.for_service_account("ephemeral-volume-controller");
    let recorder = EventRecorder::new(client.clone(), "ephemeral_volume");
    worker::run(EphemeralVolumeController { client, recorder, pods, claims }, events, stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ephemeral_claim_has_the_template_and_its_pod_as_owner() {
        let pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "x", "uid": "7"}}))
        .unwrap();
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
        let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}});
        let made = serde_json::to_value(claim(&pod, &serde_json::from_value(volume).unwrap())).unwrap();
        assert_eq!((&made["metadata"]["name"], &made["metadata"]["labels"]), (&json!("p-v"), &json!({"a": "b"})));
        assert_eq!(made["spec"], spec);
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "7", "controller": true,
            "blockOwnerDeletion": true}]);
        assert_eq!(made["metadata"]["ownerReferences"], owner);
        let other = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        assert_eq!(claim(&pod, &serde_json::from_value(other).unwrap()), None);
    }
}
