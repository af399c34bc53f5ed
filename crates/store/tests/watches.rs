//! Tests of watches, bookmarks and expiry from the watch cache.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{block_on, create, data, delete, memory, memory_with, pod, put};
use std::sync::Arc;
use store::{EventKind, Expired, Key, Options, Precondition, Scope, Watch};

fn small_window() -> Options {
    Options { watch_cache_events: 4, ..Options::default() }
}

/// Returns the revisions of the available events.
#[track_caller]
fn drain(watch: &mut Watch) -> Vec<u64> {
    let mut events = Vec::new();
    watch.try_next_batch(&mut events, usize::MAX).unwrap();
    events.iter().map(|event| event.revision()).collect()
}

#[test]
fn watch_delivers_only_its_scope() {
    block_on(async {
        let (_, store) = memory();
        for key in [
            Key::new("pods", "a", "x"),
            Key::new("pods", "a", "y"),
            Key::new("pods", "b", "x"),
            Key::new("nodes", "", "x"),
        ] {
            create(&store, &key, "").await;
        }
        for (scope, expected) in [
            (Scope::resource("pods"), vec![2, 3, 4]),
            (Scope::resource("pods").in_namespace("a"), vec![2, 3]),
            (Scope::resource("pods").in_namespace("a").named("y"), vec![3]),
            (Scope::resource("pods").named("x"), vec![2, 4]),
            (Scope::resource("nodes"), vec![5]),
            (Scope::resource("nodes").in_namespace("a"), vec![]),
            (Scope::resource("secrets"), vec![]),
        ] {
            let listing = store.list(&scope, None, None);
            let listed: Vec<_> = listing.objects.iter().map(|object| object.revision).collect();
            assert_eq!(listed, expected, "list {scope:?}");
            assert_eq!(drain(&mut store.watch(scope.clone(), 1).unwrap()), expected, "watch {scope:?}");
        }
    });
}

#[test]
fn events_have_previous_version_and_are_shared() {
    block_on(async {
        let (_, store) = memory();
        let key = pod("web");
        let mut one = store.watch(Scope::resource("pods"), 1).unwrap();
        let mut other = store.watch(Scope::resource("pods").named("web"), 1).unwrap();
        let created = create(&store, &key, "a").await;
        let deleted = store.write(delete(&key, Precondition::Any)).await.unwrap();
        let first = one.next().await.unwrap();
        assert_eq!((first.kind, &first.object, &first.previous), (EventKind::Put, &created, &None));
        assert!(Arc::ptr_eq(&first, &other.next().await.unwrap()));
        let last = one.next().await.unwrap();
        assert_eq!((last.kind, &last.object, &last.previous), (EventKind::Delete, &deleted, &Some(created)));
    });
}

#[test]
fn waiting_watch_is_notified() {
    block_on(async {
        let (_, store) = memory();
        let mut watch = store.watch(Scope::resource("pods").named("web"), 1).unwrap();
        let waiting = tokio::spawn(async move { watch.next().await.unwrap().object.data.bytes() });
        tokio::task::yield_now().await;
        create(&store, &pod("other"), "").await;
        create(&store, &pod("web"), "a").await;
        assert_eq!(waiting.await.unwrap(), data("a", 3));
    });
}

#[test]
fn watch_behind_watch_cache_expires() {
    block_on(async {
        let (_, store) = memory_with(small_window());
        let mut slow = store.watch(Scope::resource("pods"), 1).unwrap();
        let mut fast = store.watch(Scope::resource("pods"), 1).unwrap();
        for number in 0..6 {
            create(&store, &pod(&number.to_string()), "").await;
            assert_eq!(drain(&mut fast), [number + 2]);
        }
        let expired = Expired { requested: 1, oldest: 3, current: 7 };
        assert_eq!(slow.try_next_batch(&mut Vec::new(), 1), Err(expired));
        assert_eq!(slow.next().await.unwrap_err(), expired);
        assert_eq!(store.watch(Scope::resource("pods"), 2).unwrap_err(), Expired { requested: 2, ..expired });
        assert_eq!(drain(&mut store.watch(Scope::resource("pods"), 3).unwrap()), [4, 5, 6, 7]);
        assert_eq!(store.list_at(&Scope::resource("pods"), 2, None, None).unwrap_err().oldest, 3);
        assert_eq!(store.oldest_revision("pods"), 3);
        assert_eq!(store.oldest_revision("nodes"), 1, "each resource has its own window");
    });
}

#[test]
fn watch_of_quiet_scope_does_not_expire() {
    block_on(async {
        let (_, store) = memory_with(small_window());
        let scopes =
            || [Scope::resource("pods").named("quiet"), Scope::resource("pods").in_namespace("default").named("quiet")];
        let mut watches = scopes().map(|scope| store.watch(scope, 1).unwrap());
        let mut looking = scopes().map(|scope| store.watch(scope, 1).unwrap());
        for number in 0..6 {
            create(&store, &pod(&number.to_string()), "").await;
            looking.iter_mut().for_each(|watch| assert_eq!(drain(watch), [], "after {number}"));
        }
        create(&store, &pod("quiet"), "").await;
        for (number, watch) in watches.iter_mut().chain(&mut looking).enumerate() {
            assert_eq!(drain(watch), [8], "watch {number}");
            assert_eq!(watch.progress(), 8, "watch {number}");
        }
        // Evicted events of its own scope are missed.
        let mut late = store.watch(Scope::resource("pods").named("quiet"), 7).unwrap();
        for number in 6..12 {
            create(&store, &pod(&number.to_string()), "").await;
        }
        assert!(late.try_next_batch(&mut Vec::new(), 1).is_err());
        assert_eq!(drain(&mut watches[0]), []);
    });
}

#[test]
fn watch_caches_share_a_byte_limit() {
    let options = Options { watch_cache_bytes: 100_000, ..Options::default() };
    block_on(async {
        let (_, store) = memory_with(options);
        create(&store, &Key::new("nodes", "", "quiet"), "").await;
        let text = "x".repeat(1000);
        for _ in 0..200 {
            store.write(put(&pod("busy"), Precondition::Any, &text)).await.unwrap();
        }
        assert_eq!(store.oldest_revision("nodes"), 1);
        let kept = store.revision() - store.oldest_revision("pods");
        assert!((20..=50).contains(&kept), "{kept} events of about 2300 bytes are kept");
    });
}

#[test]
fn newest_event_is_kept_regardless_of_size() {
    let options = Options { watch_cache_bytes: 0, ..Options::default() };
    block_on(async {
        let (_, store) = memory_with(options);
        let mut watch = store.watch(Scope::resource("pods"), 1).unwrap();
        for revision in 2..5 {
            store.write(put(&pod("web"), Precondition::Any, "x")).await.unwrap();
            assert_eq!(watch.next().await.unwrap().revision(), revision);
        }
    });
}

#[test]
fn progress_never_passes_undelivered_events() {
    block_on(async {
        let (_, store) = memory();
        let mut watch = store.watch(Scope::resource("pods").in_namespace("default"), 1).unwrap();
        assert_eq!(watch.progress(), 1);
        create(&store, &Key::new("nodes", "", "n"), "").await;
        create(&store, &Key::new("pods", "elsewhere", "p"), "").await;
        assert_eq!(watch.progress(), 3);
        create(&store, &pod("a"), "").await;
        create(&store, &pod("b"), "").await;
        create(&store, &Key::new("nodes", "", "m"), "").await;
        assert_eq!(watch.progress(), 3, "a and b are not delivered yet");
        assert_eq!(watch.next().await.unwrap().revision(), 4);
        assert_eq!(watch.progress(), 4);
        assert_eq!(watch.next().await.unwrap().revision(), 5);
        assert_eq!(watch.progress(), 6);
    });
}

#[test]
fn watch_from_future_revision_starts_there() {
    block_on(async {
        let (_, store) = memory();
        let mut watch = store.watch(Scope::resource("pods"), 3).unwrap();
        for name in ["a", "b", "c"] {
            create(&store, &pod(name), "").await;
        }
        assert_eq!(watch.progress(), 3);
        assert_eq!(watch.next().await.unwrap().revision(), 4);
    });
}

#[test]
fn pages_of_old_revision_are_consistent() {
    block_on(async {
        let (_, store) = memory();
        let scope = Scope::resource("pods");
        for name in ["a", "b", "c", "d", "e"] {
            create(&store, &pod(name), "").await;
        }
        let first = store.list(&scope, None, Some(2));
        assert_eq!((first.objects.len(), first.remaining, first.more()), (2, 3, true));
        store.write(delete(&pod("c"), Precondition::Any)).await.unwrap();
        store.write(put(&pod("d"), Precondition::Any, "new")).await.unwrap();
        create(&store, &pod("bb"), "").await;
        let after = first.objects.last().map(|object| object.key.clone());
        let rest = store.list_at(&scope, first.revision, after.as_ref(), None).unwrap();
        let names: Vec<_> = rest.objects.iter().map(|object| (&*object.key.name, object.revision)).collect();
        assert_eq!(names, [("c", 4), ("d", 5), ("e", 6)]);
        assert_eq!((rest.revision, rest.remaining), (6, 0));
        assert!(store.list_at(&scope, 10, None, None).is_err(), "the future cannot be listed");
    });
}
