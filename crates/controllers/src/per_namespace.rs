//! Controllers that keep one object of a fixed name in every namespace.

use crate::{
    clients::Clients,
    worker::{Controller, is_code},
};
use api::object_key::object_key;
use futures::stream::{self, BoxStream, StreamExt};
use informer::{WatchEvent, watch};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{Api, Client, Resource, api::PostParams, runtime::watcher::Config};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    time::Duration,
};
use tokio::time::Instant;

/// The object to keep in each namespace.
pub(crate) trait NamespacedObject: Send + Sync + 'static {
    /// The object's kind.
    type Object: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;

    /// Name of the controller.
    const CONTROLLER: &'static str;

    /// Name of the object.
    const NAME: &'static str;

    /// Returns the desired object.
    fn desired(&self) -> Self::Object;

    /// Returns the existing object with the desired fields; its other fields are kept.
    fn merge_desired(&self, object: Self::Object) -> Self::Object;

    /// Returns whether the object needs no update.
    fn is_up_to_date(&self, object: &Self::Object) -> bool;
}

/// Creates and updates the object in every namespace that is not terminating.
pub(crate) struct PerNamespace<T: NamespacedObject> {
    client: Client,
    object: T,
    state: Mutex<State<T::Object>>,
}

struct State<K> {
    namespaces: HashSet<String>,
    /// Namespaces that have the object; with the object if it must be updated.
    existing: HashMap<String, Option<Box<K>>>,
    /// Whether the initial list of the objects is complete.
    listed: bool,
}

pub(crate) enum Event<K> {
    Namespace(WatchEvent<Namespace>),
    Object(WatchEvent<K>),
}

impl<T: NamespacedObject> PerNamespace<T> {
    pub(crate) fn new(client: Client, object: T) -> Self {
        let state = State { namespaces: HashSet::new(), existing: HashMap::new(), listed: false };
        Self { client, object, state: Mutex::new(state) }
    }

    pub(crate) fn events(&self, clients: &Clients) -> BoxStream<'static, Event<T::Object>> {
        let by_name = Config::default().fields(&format!("metadata.name={}", T::NAME));
        let namespaces = watch(Api::all(clients.shared()), Config::default()).map(Event::Namespace);
        let objects = watch(Api::all(clients.shared()), by_name).map(Event::Object);
        stream::select(namespaces, objects).boxed()
    }

    fn on_object(&self, change: WatchEvent<T::Object>) -> Vec<String> {
        let mut state = self.state.lock();
        match change {
            WatchEvent::Applied(object) | WatchEvent::Deleted(object)
                if object.meta().name.as_deref() != Some(T::NAME) =>
            {
                vec![]
            }
            WatchEvent::Applied(object) => {
                let namespace = object.meta().namespace.clone().unwrap_or_default();
                let right = self.object.is_up_to_date(&object);
                state.existing.insert(namespace.clone(), (!right).then_some(object));
                if right { vec![] } else { vec![namespace] }
            }
            WatchEvent::Deleted(object) => {
                let namespace = object.meta().namespace.clone().unwrap_or_default();
                state.existing.remove(&namespace);
                vec![namespace]
            }
            WatchEvent::Listed(keys) => {
                state.listed = true;
                state.existing.retain(|namespace, _| keys.contains(&format!("{namespace}/{}", T::NAME)));
                state.namespaces.iter().filter(|n| !state.existing.contains_key(*n)).cloned().collect()
            }
        }
    }
}

impl<T: NamespacedObject> Controller for PerNamespace<T> {
    type Event = Event<T::Object>;

    const NAME: &'static str = T::CONTROLLER;

    fn observe(&self, event: Self::Event, _: Instant) -> Vec<String> {
        match event {
            Event::Namespace(WatchEvent::Applied(namespace)) => {
                let name = object_key(&namespace.metadata);
                if namespace.metadata.deletion_timestamp.is_some() {
                    self.state.lock().namespaces.remove(&name);
                    return vec![];
                }
                if self.state.lock().namespaces.insert(name.clone()) { vec![name] } else { vec![] }
            }
            Event::Namespace(WatchEvent::Deleted(namespace)) => {
                self.state.lock().namespaces.remove(&object_key(&namespace.metadata));
                vec![]
            }
            Event::Namespace(WatchEvent::Listed(names)) => {
                self.state.lock().namespaces.retain(|name| names.contains(name));
                vec![]
            }
            Event::Object(change) => self.on_object(change),
        }
    }

    async fn reconcile(&self, namespace: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let existing = {
            let state = self.state.lock();
            // Before the initial list is complete, most creations would fail with 409. The list enqueues the rest.
            if !state.listed || !state.namespaces.contains(namespace) {
                return Ok(None);
            }
            state.existing.get(namespace).cloned()
        };
        let api: Api<T::Object> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let written = match existing {
            Some(None) => return Ok(None),
            Some(Some(outdated)) => api.replace(T::NAME, &params, &self.object.merge_desired(*outdated)).await,
            None => api.create(&params, &self.object.desired()).await,
        };
        match written {
            // The watch shows what was written.
            Ok(_) => Ok(None),
            // The namespace is terminating or deleted, or another client was faster: the watches enqueue the key
            // again.
            Err(e) if [403, 404, 409].iter().any(|code| is_code(&e, *code)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
