//! Resources that are followed without a task: nothing runs, and whoever asks first takes in what was written since the
//! last question. So a write counts for whoever asks after it was acknowledged.

use std::sync::Arc;
use store::{Event, Expired, Listing, Scope, Store, Watch};

/// How many changes are taken in at a time.
const BATCH: usize = 256;

/// Follows some resources of a store; `N` of them.
pub(crate) struct Followed<const N: usize> {
    store: Store,
    resources: [&'static str; N],
    /// Empty until somebody asks.
    watches: Vec<Watch>,
}

/// What there is to take in.
pub(crate) enum News<const N: usize> {
    /// What was written since the last question, resource by resource.
    Changes(Vec<Arc<Event>>),
    /// Everything there is, of each resource: the last question is too long ago, or there was none.
    Everything([Listing; N]),
}

impl<const N: usize> Followed<N> {
    pub(crate) fn new(store: Store, resources: [&'static str; N]) -> Self {
        Self { store, resources, watches: Vec::new() }
    }

    /// What is new since this was asked last.
    pub(crate) fn news(&mut self) -> News<N> {
        if self.watches.is_empty() {
            return News::Everything(self.read());
        }
        self.changes().map_or_else(|_| News::Everything(self.read()), News::Changes)
    }

    fn changes(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        let mut events = Vec::new();
        for watch in &mut self.watches {
            while watch.try_next_batch(&mut events, BATCH)? > 0 {}
        }
        Ok(events)
    }

    /// Reads everything, and follows from there.
    pub(crate) fn read(&mut self) -> [Listing; N] {
        self.watches.clear();
        let lists = self.resources.map(|resource| {
            let listing = self.store.list(&Scope::resource(resource), None, None);
            // The window is as old as this list, or the next who asks reads everything again.
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
    use store::{Expect, Key, MemoryEngine, Options, Write};

    async fn put(store: &Store, resource: &str, name: &str) {
        store.write(Write::put(Key::new(resource, "", name), Expect::Any, "{}")).await.unwrap();
    }

    fn check(followed: &mut Followed<2>, expected: &str) {
        let found = match followed.news() {
            News::Changes(events) => events.iter().map(|e| format!("+{}", e.object.key.name)).collect::<String>(),
            News::Everything(lists) => lists.map(|l| format!("{} ", l.objects.len())).concat(),
        };
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn who_asks_rarely_is_told_everything_again() {
        let options = Options { window_events: 4, ..Options::default() };
        let store = Store::open(MemoryEngine::new(), options).unwrap();
        let mut followed = Followed::new(store.clone(), ["as", "bs"]);
        put(&store, "as", "a").await;
        check(&mut followed, "1 0 ");
        check(&mut followed, "");
        put(&store, "bs", "b").await;
        put(&store, "cs", "c").await;
        put(&store, "as", "d").await;
        check(&mut followed, "+d+b");
        for i in 0..10 {
            put(&store, "as", &i.to_string()).await;
        }
        check(&mut followed, "12 1 ");
        check(&mut followed, "");
    }
}
