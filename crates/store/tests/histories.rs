//! Random histories against a model: a map of every revision, and a list of all events.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{block_on, data, memory_with, put, template};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};
use store::{
    CommitError, Event, EventKind, Key, MemoryEngine, Object, Options, Precondition, Revision, Scope, Store, Watch,
    Write, WriteError,
};

#[derive(Clone, Debug)]
enum Step {
    /// Writes that are queued together.
    Write(Vec<(usize, ExpectedPrecondition, bool)>),
    /// A write whose commit fails.
    Fail(usize),
    /// A watch of a scope from this number of revisions ago.
    Watch(usize, u64),
    /// All watchers read up to this number of events.
    Drain(usize),
    /// A paged list of a scope from this number of revisions ago.
    List(usize, u64, usize),
    /// The store is closed and reopened.
    Reopen,
}

/// Precondition of a write, relative to the object's revision.
#[derive(Clone, Copy, Debug)]
enum ExpectedPrecondition {
    Absent,
    Current,
    Stale,
    Exists,
    Any,
}

fn step() -> impl Strategy<Value = Step> {
    let precondition = prop::sample::select(vec![
        ExpectedPrecondition::Absent,
        ExpectedPrecondition::Current,
        ExpectedPrecondition::Stale,
        ExpectedPrecondition::Exists,
        ExpectedPrecondition::Any,
    ]);
    let write = (0..KEYS.len(), precondition, prop::bool::weighted(0.3));
    prop_oneof![
        8 => prop::collection::vec(write, 1..6).prop_map(Step::Write),
        1 => (0..KEYS.len()).prop_map(Step::Fail),
        2 => (0..SCOPES, 0..30_u64).prop_map(|(scope, ago)| Step::Watch(scope, ago)),
        3 => (1..8_usize).prop_map(Step::Drain),
        3 => (0..SCOPES, 0..30_u64, 1..4_usize).prop_map(|(scope, ago, page)| Step::List(scope, ago, page)),
        1 => Just(Step::Reopen),
    ]
}

const KEYS: [(&str, &str, &str); 6] = [
    ("pods", "a", "x"),
    ("pods", "a", "y"),
    ("pods", "b", "x"),
    ("pods", "b", "z"),
    ("nodes", "", "x"),
    ("nodes", "", "y"),
];

fn key(index: usize) -> Key {
    let (resource, namespace, name) = KEYS[index];
    Key::new(resource, namespace, name)
}

const SCOPES: usize = 4;

fn scope(index: usize) -> Scope {
    match index {
        0 => Scope::resource("pods"),
        1 => Scope::resource("pods").in_namespace("b"),
        2 => Scope::resource("pods").named("x"),
        _ => Scope::resource("nodes"),
    }
}

/// Model of the store.
struct Model {
    /// The objects at each revision, from revision 1 on.
    at: Vec<BTreeMap<Key, Object>>,
    events: Vec<(EventKind, Object, Option<Object>)>,
}

impl Model {
    fn now(&self) -> &BTreeMap<Key, Object> {
        &self.at[self.at.len() - 1]
    }

    fn revision(&self) -> Revision {
        self.at.len() as u64
    }

    /// Checks a result of the store and applies it to the model.
    fn apply(&mut self, key: &Key, expect: Precondition, deletes: bool, result: Result<Object, WriteError>) {
        let current = self.now().get(key).cloned();
        let good = match (expect, &current) {
            (Precondition::Absent, current) => current.is_none() && !deletes,
            (Precondition::Revision(revision), Some(current)) => current.revision == revision,
            (Precondition::Revision(_) | Precondition::Exists, None) => false,
            (Precondition::Exists, Some(_)) => true,
            (Precondition::Any, current) => current.is_some() || !deletes,
        };
        assert_eq!(result.is_ok(), good, "{expect:?} of {current:?}: {result:?}");
        let Ok(object) = result else { return };
        assert_eq!(object.revision, self.revision() + 1, "revisions have no gaps");
        assert_eq!(*object.data, data("x", object.revision));
        assert_eq!(object.create_revision, current.as_ref().map_or(object.revision, |old| old.create_revision));
        let mut objects = self.now().clone();
        let kind = if deletes {
            objects.remove(key);
            EventKind::Delete
        } else {
            objects.insert(key.clone(), object.clone());
            EventKind::Put
        };
        self.at.push(objects);
        self.events.push((kind, object, current));
    }
}

struct Watcher {
    watch: Watch,
    scope: Scope,
    /// Index of the next expected event of the model.
    next: usize,
}

struct StoreUnderTest {
    engine: MemoryEngine,
    store: Store,
    model: Model,
    watchers: Vec<Watcher>,
    /// Revision at the last opening.
    opened: Revision,
}

fn options() -> Options {
    Options { watch_cache_events: 12, batch_writes: 3, queue_writes: 8, ..Options::default() }
}

impl StoreUnderTest {
    fn new() -> Self {
        let (engine, store) = memory_with(options());
        let model = Model { at: vec![BTreeMap::new()], events: Vec::new() };
        Self { engine, store, model, watchers: Vec::new(), opened: 1 }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Write(writes) => self.write(writes).await,
            Step::Fail(index) => {
                self.engine.fail_next_commit(CommitError::injected());
                assert!(self.store.write(put(&key(index), Precondition::Any, "x")).await.is_err());
            }
            Step::Watch(index, ago) => self.watch(scope(index), ago),
            Step::Drain(max) => self.drain(max),
            Step::List(index, ago, page) => self.list(&scope(index), ago, page),
            Step::Reopen => {
                self.watchers.clear();
                self.store = Store::open(MemoryEngine::new(), options()).unwrap();
                self.store = Store::open(self.engine.clone(), options()).unwrap();
                self.opened = self.model.revision();
            }
        }
        assert_eq!(self.store.revision(), self.model.revision());
        for index in 0..KEYS.len() {
            assert_eq!(self.store.get(&key(index)).as_ref(), self.model.now().get(&key(index)), "key {index}");
        }
    }

    async fn write(&mut self, writes: Vec<(usize, ExpectedPrecondition, bool)>) {
        let mut results = Vec::new();
        for (index, precondition, deletes) in writes {
            let key = key(index);
            let current = self.model.now().get(&key).map_or(1, |object| object.revision);
            let expect = match precondition {
                ExpectedPrecondition::Absent => Precondition::Absent,
                ExpectedPrecondition::Current => Precondition::Revision(current),
                ExpectedPrecondition::Stale => Precondition::Revision(current - 1),
                ExpectedPrecondition::Exists => Precondition::Exists,
                ExpectedPrecondition::Any => Precondition::Any,
            };
            let template = template("x");
            let write = match deletes {
                true => Write::delete(key.clone(), expect, template),
                false => Write::put(key.clone(), expect, template),
            };
            let store = self.store.clone();
            results.push((key, expect, deletes, tokio::spawn(async move { store.write(write).await })));
            // Tasks of this runtime run in the order in which they were spawned, and the queue has capacity for all.
        }
        for (key, expect, deletes, result) in results {
            self.model.apply(&key, expect, deletes, result.await.unwrap());
        }
    }

    fn watch(&mut self, scope: Scope, ago: u64) {
        let from = self.model.revision().saturating_sub(ago).max(1);
        match self.store.watch(scope.clone(), from) {
            Ok(watch) => {
                assert!(from >= self.opened, "history does not outlive the store");
                let next = self.model.events.partition_point(|(_, object, _)| object.revision <= from);
                self.watchers.push(Watcher { watch, scope, next });
            }
            Err(expired) => {
                assert!(from < expired.oldest && expired.oldest >= self.opened);
                assert!(from < self.opened || self.exceeds_window(&scope, from), "{expired} too early");
            }
        }
    }

    fn exceeds_window(&self, scope: &Scope, from: Revision) -> bool {
        let of_resource = |object: &Object| object.key.resource == scope.resource && object.revision > from;
        self.model.events.iter().filter(|(_, object, _)| of_resource(object)).count() > options().watch_cache_events
    }

    fn drain(&mut self, max: usize) {
        for mut watcher in std::mem::take(&mut self.watchers) {
            let progress = watcher.watch.progress();
            let mut events = Vec::new();
            if watcher.watch.try_next_batch(&mut events, max).is_err() {
                assert!(self.exceeds_window(&watcher.scope, progress), "expired too early");
                continue;
            }
            let expected = self.expected(&mut watcher, max);
            let seen: Vec<_> = events.iter().map(|event: &Arc<Event>| parts(event)).collect();
            assert_eq!(seen, expected);
            let next =
                self.model.events[watcher.next..].iter().find(|(_, object, _)| watcher.scope.contains(&object.key));
            let progress = watcher.watch.progress();
            match next {
                Some((_, object, _)) => assert!(progress < object.revision),
                None => assert_eq!(progress, self.model.revision()),
            }
            self.watchers.push(watcher);
        }
    }

    /// Returns the next events of a watcher, according to the model.
    fn expected(&self, watcher: &mut Watcher, max: usize) -> Vec<(EventKind, Object, Option<Object>)> {
        let mut expected = Vec::new();
        while expected.len() < max && watcher.next < self.model.events.len() {
            let event = &self.model.events[watcher.next];
            if watcher.scope.contains(&event.1.key) {
                expected.push(event.clone());
            }
            watcher.next += 1;
        }
        expected
    }

    fn list(&self, scope: &Scope, ago: u64, page: usize) {
        let revision = self.model.revision().saturating_sub(ago).max(1);
        let objects = &self.model.at[usize::try_from(revision).unwrap() - 1];
        let expected: Vec<_> = objects.values().filter(|object| scope.contains(&object.key)).cloned().collect();
        let mut listed: Vec<Object> = Vec::new();
        loop {
            let after = listed.last().map(|object| object.key.clone());
            let Ok(listing) = self.store.list_at(scope, revision, after.as_ref(), Some(page)) else {
                assert!(revision < self.opened || self.exceeds_window(scope, revision), "expired too early");
                return;
            };
            listed.extend(listing.objects.iter().cloned());
            assert_eq!((listing.revision, listing.remaining), (revision, expected.len() - listed.len()));
            if !listing.more() {
                break;
            }
        }
        assert_eq!(listed, expected);
        if ago == 0 {
            assert_eq!(self.store.list(scope, None, None).objects, expected);
        }
    }
}

fn parts(event: &Event) -> (EventKind, Object, Option<Object>) {
    (event.kind, event.object.clone(), event.previous.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_history_matches_model(steps in prop::collection::vec(step(), 1..60)) {
        block_on(async {
            let mut tested = StoreUnderTest::new();
            for step in steps {
                tested.step(step).await;
            }
            tested.drain(usize::MAX);
        });
    }
}
