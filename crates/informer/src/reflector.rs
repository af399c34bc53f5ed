//! Reflector: a list, and a watch that continues it (client-go's `Reflector`), as a stream.

use api::object_key::object_key;
use decode::{Decode, WithoutManagedFields};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use std::{collections::HashSet, fmt::Debug, time::Duration};

/// Interval of relists, which repair missed events.
const RELIST_INTERVAL: Duration = Duration::from_secs(600);

/// A watch event, or the end of a list.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// The object was created or updated, or is part of a list.
    Applied(Box<K>),
    /// The object was deleted.
    Deleted(Box<K>),
    /// A list is complete: these [`key`](crate::key)s exist, and no others.
    Listed(HashSet<String>),
}

impl<K> WatchEvent<WithoutManagedFields<K>> {
    fn unwrap_lean(self) -> WatchEvent<K> {
        match self {
            Self::Applied(object) => WatchEvent::Applied(object.0),
            Self::Deleted(object) => WatchEvent::Deleted(object.0),
            Self::Listed(keys) => WatchEvent::Listed(keys),
        }
    }
}

/// Like [`watch`], without `managedFields`.
pub fn watch_lean<K>(api: Api<WithoutManagedFields<K>>, config: Config) -> BoxStream<'static, WatchEvent<K>>
where
    K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + Decode + Debug + Send + 'static,
{
    watch(api, config).map(WatchEvent::unwrap_lean).boxed()
}

/// Watches a kind for ever. Errors are retried with a back-off, and the kind is relisted each [`RELIST_INTERVAL`].
pub fn watch<K>(api: Api<K>, config: Config) -> BoxStream<'static, WatchEvent<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let url = api.resource_url().to_owned();
    changes(events(api, config), url)
}

/// Like [`watch`], until the kind is no longer served: custom kinds can be removed.
pub fn watch_while_served<K>(api: Api<K>, config: Config) -> BoxStream<'static, WatchEvent<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let url = api.resource_url().to_owned();
    changes(events(api, config).take_while(|event| std::future::ready(!event.as_ref().is_err_and(is_not_served))), url)
}

fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(message) | watcher::Error::WatchStartFailed(message)) = error else {
        return false;
    };
    matches!(message, kube::Error::Api(status) if status.is_not_found())
}

fn events<K>(api: Api<K>, config: Config) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let once = move || {
        // kube resets its back-off at each list, because `Init` is not an error: a failing list is retried each second.
        let events = watcher(api.clone(), config.clone()).default_backoff();
        events.take_until(tokio::time::sleep(RELIST_INTERVAL))
    };
    stream::repeat_with(once).flatten()
}

fn changes<K>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    url: String,
) -> BoxStream<'static, WatchEvent<K>>
where
    K: Resource + Send + 'static,
{
    let mut seen = HashSet::new();
    let changes = events.map(move |event| match event {
        Ok(Event::Init) => {
            seen.clear();
            None
        }
        Ok(Event::InitApply(object)) => {
            seen.insert(object_key(object.meta()));
            Some(WatchEvent::Applied(Box::new(object)))
        }
        Ok(Event::InitDone) => Some(WatchEvent::Listed(std::mem::take(&mut seen))),
        Ok(Event::Apply(object)) => Some(WatchEvent::Applied(Box::new(object))),
        Ok(Event::Delete(object)) => Some(WatchEvent::Deleted(Box::new(object))),
        Err(e) => {
            tracing::warn!(url, error = %e, "watch failed, retrying");
            None
        }
    });
    changes.filter_map(std::future::ready).boxed()
}

#[cfg(test)]
mod tests;
