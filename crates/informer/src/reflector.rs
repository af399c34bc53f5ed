//! Reflector: a list, and a watch that continues it (client-go's `Reflector`), as a stream.

mod raw_object;

use api::object_key::object_key;
use decode::Decode;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, watcher},
    },
};
use raw_object::{RawObject, raw_api};
use serde::de::DeserializeOwned;
use std::{any::Any, collections::HashSet, iter, time::Duration};

/// Interval of relists, which repair missed events.
const RELIST_INTERVAL: Duration = Duration::from_secs(600);

/// A watch event, or the end of a list.
#[derive(Debug)]
pub enum WatchEvent<K: ?Sized> {
    /// The object was created or updated, or is part of a list.
    Applied(Box<K>),
    /// The object was deleted.
    Deleted(Box<K>),
    /// A list is complete: these [`key`](crate::key)s exist, and no others.
    Listed(HashSet<String>),
}

/// A decoded object of any type, so that the code of a watch is compiled once.
type AnyObject = dyn Any + Send;

impl WatchEvent<AnyObject> {
    fn downcast<K: 'static>(self) -> Option<WatchEvent<K>> {
        Some(match self {
            Self::Applied(object) => WatchEvent::Applied(object.downcast().ok()?),
            Self::Deleted(object) => WatchEvent::Deleted(object.downcast().ok()?),
            Self::Listed(keys) => WatchEvent::Listed(keys),
        })
    }
}

/// Decodes an object's text.
type DecodeFn = fn(&str) -> serde_json::Result<Box<AnyObject>>;

fn decode_lean<K: Decode + Send + 'static>(text: &str) -> serde_json::Result<Box<AnyObject>> {
    Ok(Box::new(K::from_json_without_managed_fields(text)?))
}

fn decode_whole<K: DeserializeOwned + Send + 'static>(text: &str) -> serde_json::Result<Box<AnyObject>> {
    Ok(Box::new(serde_json::from_str::<K>(text)?))
}

/// Like [`watch`], without `managedFields`.
pub fn watch_lean<K: Resource + Decode + Send + 'static>(
    api: Api<K>,
    config: Config,
) -> BoxStream<'static, WatchEvent<K>> {
    watch_with(api, config, decode_lean::<K>, UnservedKind::Retry)
}

/// Watches a kind for ever. Errors are retried with a back-off, and the kind is relisted each [`RELIST_INTERVAL`].
pub fn watch<K: Resource + DeserializeOwned + Send + 'static>(
    api: Api<K>,
    config: Config,
) -> BoxStream<'static, WatchEvent<K>> {
    watch_with(api, config, decode_whole::<K>, UnservedKind::Retry)
}

/// Like [`watch`], until the kind is no longer served: custom kinds can be removed.
pub fn watch_while_served<K: Resource + DeserializeOwned + Send + 'static>(
    api: Api<K>,
    config: Config,
) -> BoxStream<'static, WatchEvent<K>> {
    watch_with(api, config, decode_whole::<K>, UnservedKind::End)
}

/// What a watch does when its kind is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnservedKind {
    Retry,
    End,
}

fn watch_with<K: Resource + Send + 'static>(
    api: Api<K>,
    config: Config,
    decode: DecodeFn,
    unserved: UnservedKind,
) -> BoxStream<'static, WatchEvent<K>> {
    let changes = if K::metadata_api() {
        changes(raw_api::<K, true>(api), config, decode, unserved)
    } else {
        changes(raw_api::<K, false>(api), config, decode, unserved)
    };
    changes.filter_map(|event| std::future::ready(event.downcast())).boxed()
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Watch(#[from] watcher::Error),
    #[error("{key}: {error}")]
    Decode { key: String, error: serde_json::Error },
}

impl Error {
    fn is_not_served(&self) -> bool {
        let Self::Watch(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = self
        else {
            return false;
        };
        matches!(error, kube::Error::Api(status) if status.is_not_found())
    }
}

fn changes<const METADATA: bool>(
    api: Api<RawObject<METADATA>>,
    config: Config,
    decode: DecodeFn,
    unserved: UnservedKind,
) -> BoxStream<'static, WatchEvent<AnyObject>> {
    let url = api.resource_url().to_owned();
    let is_end = move |error: &Error| unserved == UnservedKind::End && error.is_not_served();
    let events =
        events(api, config, decode).take_while(move |event| std::future::ready(!event.as_ref().is_err_and(is_end)));
    let mut seen = HashSet::new();
    let changes = events.map(move |event| match event {
        Ok(Event::Init) => {
            seen.clear();
            None
        }
        Ok(Event::InitApply((key, object))) => {
            seen.insert(key);
            Some(WatchEvent::Applied(object))
        }
        Ok(Event::InitDone) => Some(WatchEvent::Listed(std::mem::take(&mut seen))),
        Ok(Event::Apply((_, object))) => Some(WatchEvent::Applied(object)),
        Ok(Event::Delete((_, object))) => Some(WatchEvent::Deleted(object)),
        Err(e) => {
            tracing::warn!(url, error = %e, "watch failed, retrying");
            None
        }
    });
    changes.filter_map(std::future::ready).boxed()
}

/// An object and its [`key`](crate::key).
type KeyedObject = (String, Box<AnyObject>);

fn events<const METADATA: bool>(
    api: Api<RawObject<METADATA>>,
    config: Config,
    decode: DecodeFn,
) -> impl Stream<Item = Result<Event<KeyedObject>, Error>> + Send + 'static {
    let once = move || {
        let steps = watcher(api.clone(), config.clone()).flat_map(move |event| {
            let event = event.map_err(Error::from).and_then(|event| decode_event(event, decode));
            // Without the object, a list would tell of its deletion, and a watch lose its change: both begin anew.
            let end = matches!(event, Err(Error::Decode { .. })).then_some(None);
            stream::iter(iter::once(Some(event)).chain(end))
        });
        let events = steps.scan((), |(), step| std::future::ready(step));
        // kube resets its back-off at each list, because `Init` is not an error: a failing list is retried each second.
        events.default_backoff().take_until(tokio::time::sleep(RELIST_INTERVAL))
    };
    stream::repeat_with(once).flatten()
}

fn decode_event<const METADATA: bool>(
    event: Event<RawObject<METADATA>>,
    decode: DecodeFn,
) -> Result<Event<KeyedObject>, Error> {
    let decoded = |object: RawObject<METADATA>| {
        let key = object_key(object.meta());
        match decode(object.text()) {
            Ok(object) => Ok((key, object)),
            Err(error) => Err(Error::Decode { key, error }),
        }
    };
    Ok(match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(decoded(object)?),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(decoded(object)?),
        Event::Delete(object) => Event::Delete(decoded(object)?),
    })
}

#[cfg(test)]
mod tests;
