//! How the scheduler follows a kind: a watch that starts anew with a list from time to time.

use api::key::key;
use api::lean::Lean;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashSet};
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

impl Listing {
    /// Folds what a watch has shown into what is known, by its key; of each object, `keep` says what is kept. Gives the key of
    /// what is new or says something new.
    pub(crate) fn fold<K: Metadata<Ty = ObjectMeta>, T: PartialEq>(
        &mut self,
        known: &mut BTreeMap<String, T>,
        event: Event<Lean<K>>,
        keep: impl Fn(K) -> T,
    ) -> Option<String> {
        let object = match event {
            Event::Init => {
                self.seen.clear();
                return None;
            }
            Event::InitDone => {
                let seen = std::mem::take(&mut self.seen);
                known.retain(|key, _| seen.contains(key));
                self.complete = true;
                return None;
            }
            Event::Delete(Lean(object)) => {
                known.remove(&key(object.metadata()));
                return None;
            }
            Event::InitApply(Lean(object)) => {
                self.seen.insert(key(object.metadata()));
                object
            }
            Event::Apply(Lean(object)) => object,
        };
        let (key, kept) = (key(object.metadata()), keep(object));
        let is_new = known.get(&key) != Some(&kept);
        known.insert(key.clone(), kept);
        is_new.then_some(key)
    }
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
