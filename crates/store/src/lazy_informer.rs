//! Informer without a task: a caller processes the events since the previous call before it reads. So every acknowledged
//! write is visible to later callers.

use crate::{Event, Expired, List, Scope, Store, Watch};
use std::sync::Arc;

/// Events that are read at a time.
const MAX_BATCH: usize = 256;

/// Informer of `N` resources of a store.
pub struct LazyInformer<const N: usize> {
    store: Store,
    resources: [&'static str; N],
    /// Empty before the first call.
    watches: Vec<Watch>,
}

/// Changes since the previous call.
pub enum InformerUpdate<const N: usize> {
    /// The events since the previous call, resource by resource.
    Events(Vec<Arc<Event>>),
    /// All objects of each resource: this is the first call, or the events since the previous one have expired.
    Relist([List; N]),
}

impl<const N: usize> LazyInformer<N> {
    /// Creates an informer that has not read anything yet.
    #[must_use]
    pub fn new(store: Store, resources: [&'static str; N]) -> Self {
        Self { store, resources, watches: Vec::new() }
    }

    /// Returns the changes since the previous call.
    pub fn take_update(&mut self) -> InformerUpdate<N> {
        if self.watches.is_empty() {
            return InformerUpdate::Relist(self.relist());
        }
        self.changes().map_or_else(|_| InformerUpdate::Relist(self.relist()), InformerUpdate::Events)
    }

    fn changes(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        let mut events = Vec::new();
        for watch in &mut self.watches {
            while watch.try_next_batch(&mut events, MAX_BATCH)? > 0 {}
        }
        Ok(events)
    }

    /// Lists all objects, and watches from there.
    pub fn relist(&mut self) -> [List; N] {
        self.watches.clear();
        let lists = self.resources.map(|resource| {
            let listing = self.store.list(&Scope::resource(resource), None, None);
            // A watch fails if the list's revision has left the window; then the next call lists again.
            self.watches.extend(self.store.watch(Scope::resource(resource), listing.revision));
            listing
        });
        if self.watches.len() < N {
            self.watches.clear();
        }
        lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, MemoryEngine, Options, Precondition, Write};

    async fn put(store: &Store, resource: &str, name: &str) {
        store.write(Write::put(Key::new(resource, "", name), Precondition::Any, "{}")).await.unwrap();
    }

    fn check(informer: &mut LazyInformer<2>, expected: &str) {
        let found = match informer.take_update() {
            InformerUpdate::Events(events) => {
                events.iter().map(|e| format!("+{}", e.object.key.name)).collect::<String>()
            }
            InformerUpdate::Relist(lists) => lists.map(|l| format!("{} ", l.objects.len())).concat(),
        };
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn lazy_informer_relists_after_events_expired() {
        let options = Options { watch_cache_events: 4, ..Options::default() };
        let store = Store::open(MemoryEngine::new(), options).unwrap();
        let mut informer = LazyInformer::new(store.clone(), ["as", "bs"]);
        put(&store, "as", "a").await;
        check(&mut informer, "1 0 ");
        check(&mut informer, "");
        put(&store, "bs", "b").await;
        put(&store, "cs", "c").await;
        put(&store, "as", "d").await;
        check(&mut informer, "+d+b");
        for i in 0..10 {
            put(&store, "as", &i.to_string()).await;
        }
        check(&mut informer, "12 1 ");
        check(&mut informer, "");
    }
}
