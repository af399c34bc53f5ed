//! What every namespace must have: one object of a fixed name.

use crate::clients::Clients;
use crate::watch::{WatchEvent, key, watch};
use crate::worker::{Controller, is_code};
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::Instant;

/// An object that each namespace has.
pub(crate) trait InEachNamespace: Send + Sync {
    /// Its kind.
    type Object: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;

    /// The controller's name.
    const CONTROLLER: &'static str;

    /// The object's name.
    const NAME: &'static str;

    /// The object as it should be.
    fn desired(&self) -> Self::Object;

    /// An object that is there, made as it should be; what it does not say otherwise stays.
    fn corrected(&self, object: Self::Object) -> Self::Object;

    /// Whether it is as it should be.
    fn is_right(&self, object: &Self::Object) -> bool;
}

/// Makes the object in every namespace that is not being deleted.
pub(crate) struct PerNamespace<T: InEachNamespace> {
    client: Client,
    what: T,
    namespaces: HashSet<String>,
    /// The namespaces that have the object, and how it is where it is not right.
    have: HashMap<String, Option<Box<T::Object>>>,
    /// Whether it is known which namespaces have it.
    listed: bool,
}

pub(crate) enum Event<K> {
    Namespace(WatchEvent<Namespace>),
    Object(WatchEvent<K>),
}

impl<T: InEachNamespace> PerNamespace<T> {
    pub(crate) fn new(client: Client, what: T) -> Self {
        Self { client, what, namespaces: HashSet::new(), have: HashMap::new(), listed: false }
    }

    pub(crate) fn events(&self, clients: &Clients) -> BoxStream<'static, Event<T::Object>> {
        let by_name = Config::default().fields(&format!("metadata.name={}", T::NAME));
        let namespaces = watch(Api::all(clients.shared()), Config::default()).map(Event::Namespace);
        let objects = watch(Api::all(clients.shared()), by_name).map(Event::Object);
        stream::select(namespaces, objects).boxed()
    }

    fn on_object(&mut self, change: WatchEvent<T::Object>) -> Vec<String> {
        match change {
            WatchEvent::Applied(object) | WatchEvent::Deleted(object)
                if object.meta().name.as_deref() != Some(T::NAME) =>
            {
                vec![]
            }
            WatchEvent::Applied(object) => {
                let namespace = object.meta().namespace.clone().unwrap_or_default();
                let right = self.what.is_right(&object);
                self.have.insert(namespace.clone(), (!right).then_some(object));
                if right { vec![] } else { vec![namespace] }
            }
            WatchEvent::Deleted(object) => {
                let namespace = object.meta().namespace.clone().unwrap_or_default();
                self.have.remove(&namespace);
                vec![namespace]
            }
            WatchEvent::Listed(keys) => {
                self.listed = true;
                self.have.retain(|namespace, _| keys.contains(&format!("{namespace}/{}", T::NAME)));
                self.namespaces.iter().filter(|n| !self.have.contains_key(*n)).cloned().collect()
            }
        }
    }
}

impl<T: InEachNamespace> Controller for PerNamespace<T> {
    type Event = Event<T::Object>;

    const NAME: &'static str = T::CONTROLLER;

    fn observe(&mut self, event: Self::Event, _: Instant) -> Vec<String> {
        match event {
            Event::Namespace(WatchEvent::Applied(namespace)) => {
                let name = key(&namespace.metadata);
                if namespace.metadata.deletion_timestamp.is_some() {
                    self.namespaces.remove(&name);
                    return vec![];
                }
                if self.namespaces.insert(name.clone()) { vec![name] } else { vec![] }
            }
            Event::Namespace(WatchEvent::Deleted(namespace)) => {
                self.namespaces.remove(&key(&namespace.metadata));
                vec![]
            }
            Event::Namespace(WatchEvent::Listed(names)) => {
                self.namespaces.retain(|name| names.contains(name));
                vec![]
            }
            Event::Object(change) => self.on_object(change),
        }
    }

    async fn reconcile(&mut self, namespace: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let have = self.have.get(namespace);
        // Before the list is known, making would mostly be refused because it is there; the list activates the rest.
        if !self.listed || !self.namespaces.contains(namespace) || matches!(have, Some(None)) {
            return Ok(None);
        }
        let api: Api<T::Object> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let written = match have.cloned().flatten() {
            Some(wrong) => api.replace(T::NAME, &params, &self.what.corrected(*wrong)).await,
            None => api.create(&params, &self.what.desired()).await,
        };
        match written {
            Ok(_) => {
                self.have.insert(namespace.to_owned(), None);
                Ok(None)
            }
            // The namespace is going or gone, or somebody was faster: the watches tell.
            Err(e) if [403, 404, 409].iter().any(|code| is_code(&e, *code)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
