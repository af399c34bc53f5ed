//! Informers of claims, volumes and storage classes.

use crate::{cache_updates::apply_event_to_assumed, queue::PendingPod, volume_binding::VolumeCache};
use futures::stream::{BoxStream, StreamExt, select_all};
use informer::{CacheEvent, SharedInformer, SharedInformerFactory};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};

/// Event of one of the informers.
pub(crate) enum VolumeEvent {
    Claim(CacheEvent<PersistentVolumeClaim>),
    Volume(CacheEvent<PersistentVolume>),
    Class(CacheEvent<StorageClass>),
}

impl VolumeEvent {
    /// Any object of each kind may have changed.
    pub(crate) const RESYNCS: [Self; 3] =
        [Self::Claim(CacheEvent::Resync), Self::Volume(CacheEvent::Resync), Self::Class(CacheEvent::Resync)];
}

/// Pods that an event may make schedulable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AffectedPods {
    /// Pods that use one of these claims.
    Claims(Vec<String>),
    /// Pods that use any claim.
    Any,
}

/// The three informers.
#[derive(Debug)]
pub(crate) struct VolumeInformers {
    claims: SharedInformer<PersistentVolumeClaim>,
    volumes: SharedInformer<PersistentVolume>,
    classes: SharedInformer<StorageClass>,
}

impl AffectedPods {
    pub(crate) fn contains(&self, pod: &PendingPod) -> bool {
        let pod = &pod.summary;
        let used = pod.claims.iter().map(|(_, claim)| claim).chain(&pod.ephemeral_claims);
        let mut keys = used.map(|claim| format!("{}/{claim}", pod.namespace));
        match self {
            Self::Claims(changed) => keys.any(|key| changed.contains(&key)),
            Self::Any => keys.next().is_some(),
        }
    }
}

impl VolumeInformers {
    pub(crate) fn start(informers: &SharedInformerFactory) -> Self {
        Self { claims: informers.informer(), volumes: informers.informer(), classes: informers.informer() }
    }

    pub(crate) fn subscribe(&self) -> BoxStream<'static, VolumeEvent> {
        let claims = self.claims.subscribe().map(VolumeEvent::Claim);
        let volumes = self.volumes.subscribe().map(VolumeEvent::Volume);
        let classes = self.classes.subscribe().map(VolumeEvent::Class);
        select_all([claims.boxed(), volumes.boxed(), classes.boxed()]).boxed()
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.claims.has_synced() && self.volumes.has_synced() && self.classes.has_synced()
    }

    /// Applies an event to the cache; returns the affected Pods.
    pub(crate) fn apply_event(&self, storage: &mut VolumeCache, event: &VolumeEvent) -> Option<AffectedPods> {
        let any = |changed: Vec<String>| (!changed.is_empty()).then_some(AffectedPods::Any);
        match event {
            VolumeEvent::Claim(event) => {
                let changed = apply_event_to_assumed(&mut storage.claims, &self.claims, event);
                (!changed.is_empty()).then_some(AffectedPods::Claims(changed))
            }
            VolumeEvent::Volume(event) => any(apply_event_to_assumed(&mut storage.volumes, &self.volumes, event)),
            VolumeEvent::Class(event) => any(apply_event_to_assumed(&mut storage.classes, &self.classes, event)),
        }
    }
}
