//! How the scheduler follows a kind: a watch that starts anew with a list from time to time.

use futures::stream::{self, BoxStream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::time::Duration;

/// No watch is trusted for longer: a new list repairs what it lost.
const RELIST: Duration = Duration::from_secs(600);

/// How far the list of a kind has come.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// What the list that is being read has shown.
    pub(crate) seen: HashSet<String>,
    /// Whether a list was read to its end: a decision before that would rest on half of the facts.
    pub(crate) complete: bool,
}

/// A watch of all objects of a kind, with a back-off after an error.
pub(crate) fn relisting<K>(api: Api<K>) -> BoxStream<'static, Result<Event<K>, Error>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let watch = move || {
        let events = watcher(api.clone(), Config::default()).default_backoff();
        events.take_until(tokio::time::sleep(RELIST))
    };
    stream::repeat_with(watch).flatten().boxed()
}
