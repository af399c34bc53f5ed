//! Watches of claims, volumes and storage classes.

use crate::{
    reflector::{ListState, relisting_watch},
    volume_binding::{VolumeCache, claims},
};
use api::without_managed_fields::WithoutManagedFields;
use futures::stream::{BoxStream, StreamExt, select_all};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    runtime::watcher::{Error, Event},
};

/// Event of one of the watches.
pub(crate) enum VolumeEvent {
    Claim(Box<Event<WithoutManagedFields<PersistentVolumeClaim>>>),
    Volume(Box<Event<WithoutManagedFields<PersistentVolume>>>),
    Class(Box<Event<WithoutManagedFields<StorageClass>>>),
}

/// Pods that an event may make schedulable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AffectedPods {
    /// Pods that use this claim.
    Claim(String),
    /// Pods that use any claim.
    Any,
}

/// States of the three lists.
#[derive(Debug, Default)]
pub(crate) struct VolumeListStates {
    claims: ListState,
    volumes: ListState,
    classes: ListState,
}

pub(crate) fn watch(client: &Client) -> BoxStream<'static, Result<VolumeEvent, Error>> {
    let claims =
        relisting_watch(Api::all(client.clone())).map(|event| event.map(|event| VolumeEvent::Claim(Box::new(event))));
    let volumes =
        relisting_watch(Api::all(client.clone())).map(|event| event.map(|event| VolumeEvent::Volume(Box::new(event))));
    let classes =
        relisting_watch(Api::all(client.clone())).map(|event| event.map(|event| VolumeEvent::Class(Box::new(event))));
    select_all([claims.boxed(), volumes.boxed(), classes.boxed()]).boxed()
}

impl AffectedPods {
    pub(crate) fn contains(&self, pod: &Pod) -> bool {
        claims(pod).any(|used| match self {
            Self::Claim(key) => used == *key,
            Self::Any => true,
        })
    }
}

impl VolumeListStates {
    pub(crate) fn synced(&self) -> bool {
        self.claims.synced && self.volumes.synced && self.classes.synced
    }

    /// Applies an event to the cache; returns the affected Pods.
    pub(crate) fn apply_event(&mut self, storage: &mut VolumeCache, event: VolumeEvent) -> Option<AffectedPods> {
        match event {
            VolumeEvent::Claim(event) => {
                self.claims.apply_event(&mut storage.claims, *event, |object| object).map(AffectedPods::Claim)
            }
            VolumeEvent::Volume(event) => {
                self.volumes.apply_event(&mut storage.volumes, *event, |object| object).map(|_| AffectedPods::Any)
            }
            VolumeEvent::Class(event) => {
                self.classes.apply_event(&mut storage.classes, *event, |object| object).map(|_| AffectedPods::Any)
            }
        }
    }
}
