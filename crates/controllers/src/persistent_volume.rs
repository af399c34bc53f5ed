//! Persistent volume controller: binds claims and volumes (`pkg/controller/volume/persistentvolume`).
//!
//! [`claim`] and [`volume`] decide the next step and are pure; [`binding`] and [`reclaim`] write it, one object at a
//! time, the volume first. An interrupted sync resumes from the written state.
//!
//! **Invariant:** a volume is bound to another claim, or its data deleted, only if the API itself, not a cache, shows
//! that its claim is gone.

mod binding;
mod claim;
mod provisioner;
mod reclaim;
#[cfg(test)]
mod tests;
mod volume;

pub use provisioner::{Provisioner, VolumeDirectories};

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    names,
    pod_summary::PodSummary,
    worker::{self, Controller},
};
use api::persistent_volume_claim::{BIND_COMPLETED, annotation, claim_ref, claim_storage_class, volume_name};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Client, ResourceExt};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

enum Event {
    Claim(CacheEvent<PersistentVolumeClaim>),
    Volume(CacheEvent<PersistentVolume>),
    Class(CacheEvent<StorageClass>),
}

/// Binds claims and volumes, and reclaims released volumes.
struct PersistentVolumeController {
    client: Client,
    recorder: EventRecorder,
    claims: SharedInformer<PersistentVolumeClaim>,
    volumes: SharedInformer<PersistentVolume>,
    classes: SharedInformer<StorageClass>,
    pods: SharedInformer<PodSummary>,
    provisioner: Option<Provisioner>,
}

/// An Event to record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordedEvent {
    warning: bool,
    reason: &'static str,
    message: String,
}

impl RecordedEvent {
    fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: false, reason, message: message.into() }
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }
}

/// Returns the key of the claim in `spec.claimRef`.
fn claim_key(volume: &PersistentVolume) -> Option<String> {
    let to = claim_ref(volume)?;
    Some(format!("{}/{}", to.namespace.as_deref()?, to.name.as_deref()?))
}

fn is_unbound(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, BIND_COMPLETED).is_none()
}

impl PersistentVolumeController {
    /// Returns the keys of a claim and its volumes.
    fn affected_by_claim(&self, claim: &PersistentVolumeClaim) -> Vec<String> {
        let own_key = key(claim);
        let named = volume_name(claim).map(str::to_owned);
        let all = self.volumes.all();
        let bound =
            all.iter().filter(|volume| claim_key(volume).as_ref() == Some(&own_key)).map(|volume| volume.name_any());
        [own_key.clone()].into_iter().chain(bound).chain(named).collect()
    }

    /// Returns the keys of a volume, its claim, claims that name it, and claims that it may be bound to.
    fn affected_by_volume(&self, volume: &PersistentVolume) -> Vec<String> {
        let (name, class) = (volume.name_any(), api::persistent_volume_claim::volume_storage_class(volume));
        let is_free = claim_ref(volume).is_none();
        let concerned = |claim: &PersistentVolumeClaim| match volume_name(claim) {
            Some(named) => named == name,
            None => is_free && is_unbound(claim) && claim_storage_class(claim) == class,
        };
        let claims = self.claims.all().into_iter().filter(|claim| concerned(claim)).map(|claim| key(claim.as_ref()));
        [name.clone()].into_iter().chain(claim_key(volume)).chain(claims).collect()
    }

    fn all(&self) -> Vec<String> {
        self.volumes.keys().into_iter().chain(self.claims.keys()).collect()
    }

    fn has_synced(&self) -> bool {
        self.claims.has_synced() && self.volumes.has_synced() && self.classes.has_synced()
    }
}

/// Keys of claims contain a namespace and a slash; those of volumes do not.
impl Controller for PersistentVolumeController {
    type Event = Event;

    const NAME: &'static str = names::PERSISTENT_VOLUME_BINDER;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        if !self.has_synced() {
            return vec![];
        }
        match event {
            Event::Claim(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().flat_map(|claim| self.affected_by_claim(claim)).collect()
            }
            Event::Volume(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().flat_map(|volume| self.affected_by_volume(volume)).collect()
            }
            Event::Class(CacheEvent::Changed { .. }) => {
                let waiting = self.claims.all().into_iter().filter(|claim| is_unbound(claim));
                waiting.map(|claim| key(claim.as_ref())).collect()
            }
            Event::Claim(CacheEvent::Resync) | Event::Volume(CacheEvent::Resync) | Event::Class(CacheEvent::Resync) => {
                self.all()
            }
        }
    }

    async fn reconcile(&self, key: &str, _now: Instant) -> Result<Option<Duration>, kube::Error> {
        if key.contains('/') {
            let Some(claim) = self.claims.get_by_key(key) else { return Ok(None) };
            return self.sync_claim(&claim).await;
        }
        let Some(volume) = self.volumes.get_by_key(key) else { return Ok(None) };
        Box::pin(self.sync_volume(&volume)).await
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: &Clients,
    pods: SharedInformer<PodSummary>,
    claims: SharedInformer<PersistentVolumeClaim>,
    provisioner: Option<Provisioner>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let informers = clients.informers();
    let (volumes, classes) = (informers.informer(), informers.informer());
    let events = stream::select_all([
        claims.subscribe().map(Event::Claim).boxed(),
        volumes.subscribe().map(Event::Volume).boxed(),
        classes.subscribe().map(Event::Class).boxed(),
    ]);
    let client = clients.for_service_account("persistent-volume-binder");
    let recorder = EventRecorder::new(client.clone(), "persistentvolume-controller");
    let binder = PersistentVolumeController { client, recorder, claims, volumes, classes, pods, provisioner };
    worker::run(binder, events.boxed(), stop)
}

/// Returns the first Pod by name that uses the claim and is not scheduled.
fn unscheduled_pod(pods: &SharedInformer<PodSummary>, claim: &PersistentVolumeClaim) -> Option<Arc<PodSummary>> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let uses = |pod: &PodSummary| {
        pod.claims.iter().map(|(_, claim)| claim).chain(&pod.ephemeral_claims).any(|used| used == name)
    };
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    pods.in_namespace(namespace).into_iter().find(|pod| pod.active && pod.node.is_none() && uses(pod))
}
