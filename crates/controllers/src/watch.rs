//! The one way in which controllers learn what happens.

pub(crate) use api::key::key;

use api::lean::Lean;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fmt::Debug;
use std::time::Duration;

/// No watch is trusted for longer: a new list repairs what it lost.
const RELIST: Duration = Duration::from_secs(600);

/// What happened to the objects of a kind.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// It was made or changed, or is just seen again.
    Set(Box<K>),
    /// It is gone.
    Gone(Box<K>),
    /// A list was read to its end: there are these, by [`key`], and no others.
    Listed(HashSet<String>),
}

impl<K> Change<Lean<K>> {
    fn bare(self) -> Change<K> {
        match self {
            Self::Set(object) => Change::Set(Box::new(object.0)),
            Self::Gone(object) => Change::Gone(Box::new(object.0)),
            Self::Listed(keys) => Change::Listed(keys),
        }
    }
}

/// Watches a kind as [`watch`] does, past who owns what of its objects.
pub(crate) fn watch_lean<K>(api: Api<Lean<K>>, config: Config) -> BoxStream<'static, Change<K>>
where
    K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch(api, config).map(Change::bare).boxed()
}

/// Watches a kind for ever: after an error with a back-off, and anew with a list from time to time.
pub(crate) fn watch<K>(api: Api<K>, config: Config) -> BoxStream<'static, Change<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let once = move || {
        let events = watcher(api.clone(), config.clone()).default_backoff();
        events.take_until(tokio::time::sleep(RELIST))
    };
    let mut seen = HashSet::new();
    let changes = stream::repeat_with(once).flatten().map(move |event| match event {
        Ok(Event::Init) => {
            seen.clear();
            None
        }
        Ok(Event::InitApply(object)) => {
            seen.insert(key(object.meta()));
            Some(Change::Set(Box::new(object)))
        }
        Ok(Event::InitDone) => Some(Change::Listed(std::mem::take(&mut seen))),
        Ok(Event::Apply(object)) => Some(Change::Set(Box::new(object))),
        Ok(Event::Delete(object)) => Some(Change::Gone(Box::new(object))),
        Err(e) => {
            tracing::warn!("a watch is interrupted: {e}");
            None
        }
    });
    changes.filter_map(std::future::ready).boxed()
}
