//! Objects that several controllers look at: one watch, one copy, and everyone hears of changes.
//!
//! A change is told with the object as it was and as it is; whoever is too slow to hear of each is told that all may
//! have changed. Reading always gives the newest that the watch has shown.

use crate::watch::{Change, watch_lean};
use api::lean::Lean;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Api, Resource};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

/// So many changes may wait for a controller that is busy.
const WAITING: usize = 256;

/// What is kept of an object.
pub(crate) trait Kept: PartialEq + Send + Sync + 'static {
    fn namespace(&self) -> &str;
    fn name(&self) -> &str;
}

/// What happened to what is kept.
#[derive(Debug)]
pub(crate) enum Seen<T> {
    /// One object, as it was and as it is.
    One { before: Option<Arc<T>>, after: Option<Arc<T>> },
    /// All were listed for the first time, or more happened than could be told.
    All,
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Self {
        match self {
            Self::One { before, after } => Self::One { before: before.clone(), after: after.clone() },
            Self::All => Self::All,
        }
    }
}

impl<T> Seen<T> {
    /// The object as it was and as it is.
    pub(crate) fn both(&self) -> impl Iterator<Item = &Arc<T>> {
        let both = match self {
            Self::One { before, after } => [before.as_ref(), after.as_ref()],
            Self::All => [None, None],
        };
        both.into_iter().flatten()
    }
}

/// All objects of a kind. Clones are the same.
pub(crate) struct Cache<T> {
    known: Arc<RwLock<Known<T>>>,
    told: broadcast::Sender<Seen<T>>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self { known: Arc::clone(&self.known), told: self.told.clone() }
    }
}

struct Known<T> {
    by_namespace: HashMap<String, BTreeMap<String, Arc<T>>>,
    /// The greatest revision that was seen.
    revision: u64,
    /// Whether all have been seen once.
    listed: bool,
}

/// Whole objects are kept as they are.
impl<K> Kept for K
where
    K: Resource + PartialEq + Send + Sync + 'static,
{
    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }
}

impl<T: Kept> Cache<T> {
    pub(crate) fn new() -> Self {
        let known = Known { by_namespace: HashMap::new(), revision: 0, listed: false };
        Self { known: Arc::new(RwLock::new(known)), told: broadcast::channel(WAITING).0 }
    }

    /// Follows the objects until it is cancelled; of each, `keep` says what is kept.
    pub(crate) async fn follow<K>(self, api: Api<Lean<K>>, keep: fn(K) -> T, stop: CancellationToken)
    where
        K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        self.follow_some(api, Config::default(), keep, stop).await;
    }

    /// The same for those objects only that are asked for.
    pub(crate) async fn follow_some<K>(
        self,
        api: Api<Lean<K>>,
        which: Config,
        keep: fn(K) -> T,
        stop: CancellationToken,
    ) where
        K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut changes = watch_lean(api, which);
        while let Some(Some(change)) = stop.run_until_cancelled(changes.next()).await {
            for seen in self.known.write().fold(change, keep) {
                // That nobody listens is no failure.
                let _ = self.told.send(seen);
            }
        }
    }

    /// What happens from now on.
    pub(crate) fn changes(&self) -> BoxStream<'static, Seen<T>> {
        let changes = stream::unfold(self.told.subscribe(), |mut told| async move {
            match told.recv().await {
                Ok(seen) => Some((seen, told)),
                Err(RecvError::Lagged(_)) => Some((Seen::All, told)),
                Err(RecvError::Closed) => None,
            }
        });
        changes.boxed()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.known.read().by_namespace.get(namespace)?.get(name).cloned()
    }

    /// By its [`key`].
    pub(crate) fn at(&self, key: &str) -> Option<Arc<T>> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.get(namespace, name)
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let known = self.known.read();
        known.by_namespace.get(namespace).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.known.read().by_namespace.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.known.read().by_namespace.values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The [`key`] of all.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.known.read().by_namespace.values().flat_map(BTreeMap::values).map(|kept| key(kept.as_ref())).collect()
    }

    /// The greatest revision that was seen.
    pub(crate) fn revision(&self) -> u64 {
        self.known.read().revision
    }

    /// Whether all have been seen once.
    pub(crate) fn listed(&self) -> bool {
        self.known.read().listed
    }
}

/// `namespace/name`, or `name` of what has no namespace.
pub(crate) fn key<T: Kept>(kept: &T) -> String {
    match kept.namespace() {
        "" => kept.name().to_owned(),
        namespace => format!("{namespace}/{}", kept.name()),
    }
}

impl<T: Kept> Known<T> {
    fn fold<K: Resource>(&mut self, change: Change<K>, keep: fn(K) -> T) -> Vec<Seen<T>> {
        match change {
            Change::Set(object) => {
                self.saw(object.as_ref());
                let kept = Arc::new(keep(*object));
                let all = self.by_namespace.entry(kept.namespace().to_owned()).or_default();
                let before = all.insert(kept.name().to_owned(), Arc::clone(&kept));
                // What says nothing new concerns nobody.
                if before.as_deref() == Some(&*kept) {
                    return vec![];
                }
                vec![Seen::One { before, after: Some(kept) }]
            }
            Change::Gone(object) => {
                self.saw(object.as_ref());
                let meta = object.meta();
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                self.remove(namespace, meta.name.as_deref().unwrap_or_default()).into_iter().collect()
            }
            Change::Listed(keys) => {
                let mut seen = self.retain(&keys);
                if !std::mem::replace(&mut self.listed, true) {
                    seen.push(Seen::All);
                }
                seen
            }
        }
    }

    fn saw<K: Resource>(&mut self, object: &K) {
        let revision = object.meta().resource_version.as_deref().and_then(|r| r.parse().ok());
        self.revision = self.revision.max(revision.unwrap_or(0));
    }

    fn retain(&mut self, keys: &HashSet<String>) -> Vec<Seen<T>> {
        let all = self.by_namespace.values().flat_map(BTreeMap::values);
        let gone: Vec<Arc<T>> = all.filter(|kept| !keys.contains(&key(kept.as_ref()))).cloned().collect();
        gone.iter().filter_map(|kept| self.remove(kept.namespace(), kept.name())).collect()
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<Seen<T>> {
        let all = self.by_namespace.get_mut(namespace)?;
        let before = all.remove(name)?;
        if all.is_empty() {
            self.by_namespace.remove(namespace);
        }
        Some(Seen::One { before: Some(before), after: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[derive(Debug, PartialEq)]
    struct Slim(String, Option<String>);

    impl Kept for Slim {
        fn namespace(&self) -> &'static str {
            "x"
        }
        fn name(&self) -> &str {
            &self.0
        }
    }

    fn keep(map: ConfigMap) -> Slim {
        Slim(map.metadata.name.unwrap_or_default(), map.data.and_then(|d| d.get("a").cloned()))
    }

    fn map(name: &str, revision: u64, a: &str) -> Box<ConfigMap> {
        Box::new(ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some("x".into()),
                resource_version: Some(revision.to_string()),
                ..ObjectMeta::default()
            },
            data: Some([("a".to_owned(), a.to_owned())].into()),
            ..ConfigMap::default()
        })
    }

    fn told(cache: &Cache<Slim>, change: Change<ConfigMap>) -> Vec<String> {
        let seen = cache.known.write().fold(change, keep);
        let show = |one: &Option<Arc<Slim>>| one.as_ref().map_or("-", |s| s.1.as_deref().unwrap_or("")).to_owned();
        let line = |seen: &Seen<Slim>| match seen {
            Seen::One { before, after } => format!("{} > {}", show(before), show(after)),
            Seen::All => "all".to_owned(),
        };
        seen.iter().map(line).collect()
    }

    #[test]
    fn a_change_is_told_as_it_was_and_as_it_is_and_only_when_it_says_something_new() {
        let cache = Cache::new();
        assert_eq!(told(&cache, Change::Set(map("m", 3, "one"))), ["- > one"]);
        assert_eq!(told(&cache, Change::Set(map("m", 4, "one"))), [""; 0]);
        assert_eq!(told(&cache, Change::Set(map("m", 5, "two"))), ["one > two"]);
        assert_eq!(cache.revision(), 5);
        assert_eq!(told(&cache, Change::Set(map("n", 6, "three"))), ["- > three"]);
        assert!(!cache.listed());
        assert_eq!(told(&cache, Change::Listed(["x/m".to_owned()].into())), ["three > -", "all"]);
        assert!(cache.listed() && cache.keys() == ["x/m"]);
        assert_eq!(told(&cache, Change::Listed(["x/m".to_owned()].into())), [""; 0]);
        assert_eq!(told(&cache, Change::Gone(map("m", 9, "two"))), ["two > -"]);
        assert!(cache.revision() == 9 && cache.in_namespace("x").is_empty());
    }

    #[tokio::test]
    async fn whoever_is_too_slow_is_told_that_all_may_have_changed() {
        let cache: Cache<Slim> = Cache::new();
        let mut changes = cache.changes();
        for _ in 0..=WAITING {
            cache.told.send(Seen::One { before: None, after: None }).unwrap();
        }
        assert!(matches!(changes.next().await, Some(Seen::All)));
        assert!(matches!(changes.next().await, Some(Seen::One { .. })));
    }
}
