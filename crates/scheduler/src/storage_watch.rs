//! Following claims, volumes and classes.

use crate::listing::{Listing, relisting};
use crate::storage::{Storage, claims};
use api::lean::Lean;
use futures::stream::{BoxStream, StreamExt, select_all};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::watcher::{Error, Event};
use kube::{Api, Client};

/// What a watch has shown.
pub(crate) enum Seen {
    Claim(Box<Event<Lean<PersistentVolumeClaim>>>),
    Volume(Box<Event<Lean<PersistentVolume>>>),
    Class(Box<Event<Lean<StorageClass>>>),
}

/// Which Pods may fit now that did not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// Those that use this claim.
    Claim(String),
    /// All that use any.
    Any,
}

/// How far the lists have come.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    claims: Listing,
    volumes: Listing,
    classes: Listing,
}

pub(crate) fn watch(client: &Client) -> BoxStream<'static, Result<Seen, Error>> {
    let claims = relisting(Api::all(client.clone())).map(|event| event.map(|event| Seen::Claim(Box::new(event))));
    let volumes = relisting(Api::all(client.clone())).map(|event| event.map(|event| Seen::Volume(Box::new(event))));
    let classes = relisting(Api::all(client.clone())).map(|event| event.map(|event| Seen::Class(Box::new(event))));
    select_all([claims.boxed(), volumes.boxed(), classes.boxed()]).boxed()
}

impl Concern {
    pub(crate) fn is_about(&self, pod: &Pod) -> bool {
        claims(pod).any(|used| match self {
            Self::Claim(key) => used == *key,
            Self::Any => true,
        })
    }
}

impl Listings {
    pub(crate) fn complete(&self) -> bool {
        self.claims.complete && self.volumes.complete && self.classes.complete
    }

    /// Folds what a watch has shown into what is known.
    pub(crate) fn fold(&mut self, storage: &mut Storage, seen: Seen) -> Option<Concern> {
        match seen {
            Seen::Claim(event) => self.claims.fold(&mut storage.claims, *event, |object| object).map(Concern::Claim),
            Seen::Volume(event) => {
                self.volumes.fold(&mut storage.volumes, *event, |object| object).map(|_| Concern::Any)
            }
            Seen::Class(event) => {
                self.classes.fold(&mut storage.classes, *event, |object| object).map(|_| Concern::Any)
            }
        }
    }
}
