//! Protection of claims, volumes and VolumeAttributesClasses: a finalizer keeps them while they are used
//! (`pkg/controller/volume/{pvc,pv,vac}protection`).
//!
//! This module handles the finalizer; each kind decides whether an object is used.

mod pv;
mod pvc;
mod vac;

pub(crate) use pv::run as pv_protection;
pub(crate) use pvc::run as pvc_protection;
pub(crate) use vac::run as vac_protection;

use crate::worker::{Controller, ignore_not_found_or_conflict};
use api::object_key::object_key;
use informer::WatchEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource, api::PostParams};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::HashSet, fmt::Debug, time::Duration};
use tokio::time::Instant;

/// A protected kind.
pub(crate) trait Protected: Send + Sync + 'static {
    /// The kind's type.
    type Object: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Name of the controller.
    const CONTROLLER: &'static str;

    /// The protection finalizer.
    const FINALIZER: &'static str;

    /// Returns the API of the objects in a namespace.
    fn api(client: Client, namespace: &str) -> Api<Self::Object>;

    /// Returns whether the object is used. A negative result must not rely on stale caches.
    fn is_used(&self, client: &Client, object: &Self::Object)
    -> impl Future<Output = Result<bool, kube::Error>> + Send;
}

/// Event of a protection controller.
pub(crate) enum Event<K> {
    Object(WatchEvent<K>),
    /// The objects with these keys are no longer used by some user.
    Released(Vec<String>),
    /// Any object may no longer be used.
    All,
}

/// Removes the finalizer of objects that are being deleted and not used.
pub(crate) struct ProtectionController<G> {
    client: Client,
    protected: G,
    /// Keys of objects that are being deleted and have the finalizer.
    pending_deletion: Mutex<HashSet<String>>,
}

impl<G: Protected> ProtectionController<G> {
    fn new(client: Client, protected: G) -> Self {
        Self { client, protected, pending_deletion: Mutex::default() }
    }

    fn on_object(&self, change: WatchEvent<G::Object>) -> Vec<String> {
        match change {
            WatchEvent::Applied(object) => {
                let key = object_key(object.meta());
                match (is_deleting(object.meta()), has_finalizer::<G>(object.meta())) {
                    (true, true) => {
                        self.pending_deletion.lock().insert(key.clone());
                        vec![key]
                    }
                    // The object was created before the API server added the finalizer.
                    (false, false) => vec![key],
                    _ => {
                        self.pending_deletion.lock().remove(&key);
                        vec![]
                    }
                }
            }
            WatchEvent::Deleted(object) => {
                self.pending_deletion.lock().remove(&object_key(object.meta()));
                vec![]
            }
            WatchEvent::Listed(keys) => {
                self.pending_deletion.lock().retain(|key| keys.contains(key));
                vec![]
            }
        }
    }
}

fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

fn has_finalizer<G: Protected>(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer == G::FINALIZER)
}

impl<G: Protected> Controller for ProtectionController<G> {
    type Event = Event<G::Object>;

    const NAME: &'static str = G::CONTROLLER;

    fn observe(&self, event: Self::Event, _: Instant) -> Vec<String> {
        match event {
            Event::Object(change) => self.on_object(change),
            Event::Released(keys) => {
                let pending = self.pending_deletion.lock();
                keys.into_iter().filter(|key| pending.contains(key)).collect()
            }
            Event::All => self.pending_deletion.lock().iter().cloned().collect(),
        }
    }

    async fn reconcile(&self, key: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let api = G::api(self.client.clone(), namespace);
        let Some(mut object) = api.get_opt(name).await? else { return Ok(None) };
        let (deleting, protected_by_finalizer) = (is_deleting(object.meta()), has_finalizer::<G>(object.meta()));
        if deleting != protected_by_finalizer || (deleting && self.protected.is_used(&self.client, &object).await?) {
            return Ok(None);
        }
        let finalizers = object.meta_mut().finalizers.get_or_insert_default();
        if deleting {
            finalizers.retain(|finalizer| finalizer != G::FINALIZER);
        } else {
            finalizers.push(G::FINALIZER.to_owned());
        }
        // If the object has changed or is gone, the watch enqueues it again.
        ignore_not_found_or_conflict(api.replace(name, &PostParams::default(), &object).await)?;
        Ok(None)
    }
}
