//! What stores data is held by a finalizer until nobody uses it any more (`pkg/controller/volume/{pvc,pv,vac}protection`).
//!
//! What is common to all is here; who uses what is each kind's to say.

mod claim;
mod class;
mod volume;

pub(crate) use claim::run as claims;
pub(crate) use class::run as classes;
pub(crate) use volume::run as volumes;

use crate::watch::{WatchEvent, key};
use crate::worker::{Controller, ignore_not_found_or_conflict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::Instant;

/// A kind whose objects are held.
pub(crate) trait Guarded: Send + Sync {
    /// The kind.
    type Object: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The controller's name.
    const CONTROLLER: &'static str;

    /// What holds them.
    const FINALIZER: &'static str;

    /// Where an object is written whose key has this namespace.
    fn api(client: Client, namespace: &str) -> Api<Self::Object>;

    /// Whether somebody uses it still. That nobody does is not to be taken from what may be old.
    fn is_used(&self, client: &Client, object: &Self::Object)
    -> impl Future<Output = Result<bool, kube::Error>> + Send;
}

/// What concerns the objects.
pub(crate) enum Event<K> {
    Object(WatchEvent<K>),
    /// Somebody no longer uses what has these keys.
    Freed(Vec<String>),
    /// Anybody may no longer use anything.
    All,
}

/// Lets objects go that are being deleted once nobody uses them.
pub(crate) struct InUse<G> {
    client: Client,
    guarded: G,
    /// Those that are being deleted and are held.
    waiting: HashSet<String>,
}

impl<G: Guarded> InUse<G> {
    fn new(client: Client, guarded: G) -> Self {
        Self { client, guarded, waiting: HashSet::new() }
    }

    fn on_object(&mut self, change: WatchEvent<G::Object>) -> Vec<String> {
        match change {
            WatchEvent::Applied(object) => {
                let key = key(object.meta());
                match (is_going(object.meta()), is_held::<G>(object.meta())) {
                    (true, true) => {
                        self.waiting.insert(key.clone());
                        vec![key]
                    }
                    // From before objects were held as they are made.
                    (false, false) => vec![key],
                    _ => {
                        self.waiting.remove(&key);
                        vec![]
                    }
                }
            }
            WatchEvent::Deleted(object) => {
                self.waiting.remove(&key(object.meta()));
                vec![]
            }
            WatchEvent::Listed(keys) => {
                self.waiting.retain(|key| keys.contains(key));
                vec![]
            }
        }
    }
}

fn is_going(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

fn is_held<G: Guarded>(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer == G::FINALIZER)
}

impl<G: Guarded> Controller for InUse<G> {
    type Event = Event<G::Object>;

    const NAME: &'static str = G::CONTROLLER;

    fn observe(&mut self, event: Self::Event, _: Instant) -> Vec<String> {
        match event {
            Event::Object(change) => self.on_object(change),
            Event::Freed(keys) => keys.into_iter().filter(|key| self.waiting.contains(key)).collect(),
            Event::All => self.waiting.iter().cloned().collect(),
        }
    }

    async fn reconcile(&mut self, key: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let api = G::api(self.client.clone(), namespace);
        let Some(mut object) = api.get_opt(name).await? else { return Ok(None) };
        let (going, held) = (is_going(object.meta()), is_held::<G>(object.meta()));
        if going != held || (going && self.guarded.is_used(&self.client, &object).await?) {
            return Ok(None);
        }
        let finalizers = object.meta_mut().finalizers.get_or_insert_default();
        if going {
            finalizers.retain(|finalizer| finalizer != G::FINALIZER);
        } else {
            finalizers.push(G::FINALIZER.to_owned());
        }
        // It has changed, or gone, meanwhile: the watch says so.
        ignore_not_found_or_conflict(api.replace(name, &PostParams::default(), &object).await)?;
        Ok(None)
    }
}
