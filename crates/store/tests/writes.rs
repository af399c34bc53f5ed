//! Tests of writes, and of engine failures.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{Gate, GatedEngine, block_on, create, data, delete, memory, memory_with, outcome, pod, put};
use store::{CommitError, Key, Options, Precondition, Scope, Store, Write, WriteError};

/// Checks the result of a write on an object that is absent, or that exists at revision 2.
#[track_caller]
fn check(exists: bool, write: impl FnOnce(&Key) -> Write, expected: &str) {
    block_on(async {
        let (_, store) = memory();
        let key = pod("web");
        if exists {
            create(&store, &key, "first").await;
        }
        let before = store.revision();
        let answer = store.write(write(&key)).await;
        assert_eq!(outcome(&answer), expected);
        assert_eq!(store.revision(), before + u64::from(answer.is_ok()), "only a successful write has a revision");
        match answer {
            Err(WriteError::Conflict { current } | WriteError::AlreadyExists { current }) => {
                assert_eq!(Some(current), store.get(&key));
            }
            Ok(object) => assert_eq!(object.revision, store.revision()),
            Err(_) => {}
        }
    });
}

#[test]
fn write_requires_its_precondition() {
    for (expect, absent, present) in [
        (Precondition::Absent, "done", "exists"),
        (Precondition::Revision(2), "not found", "done"),
        (Precondition::Revision(1), "not found", "conflict"),
        (Precondition::Revision(3), "not found", "conflict"),
        (Precondition::Exists, "not found", "done"),
        (Precondition::Any, "done", "done"),
    ] {
        check(false, |key| put(key, expect, "x"), absent);
        check(true, |key| put(key, expect, "x"), present);
    }
    for (expect, present) in [
        (Precondition::Absent, "exists"),
        (Precondition::Revision(2), "done"),
        (Precondition::Revision(1), "conflict"),
        (Precondition::Exists, "done"),
        (Precondition::Any, "done"),
    ] {
        check(false, |key| delete(key, expect), "not found");
        check(true, |key| delete(key, expect), present);
    }
}

#[test]
fn create_revision_is_kept_until_delete() {
    block_on(async {
        let (_, store) = memory();
        let key = pod("web");
        assert_eq!(store.revision(), 1);
        assert_eq!(create(&store, &key, "a").await.create_revision, 2);
        let updated = store.write(put(&key, Precondition::Revision(2), "b")).await.unwrap();
        assert_eq!((updated.revision, updated.create_revision), (3, 2));
        assert_eq!(*updated.data, data("b", 3));
        let deleted = store.write(delete(&key, Precondition::Any)).await.unwrap();
        assert_eq!((deleted.revision, deleted.create_revision), (4, 2));
        assert_eq!(*deleted.data, data("deleted", 4));
        assert_eq!(store.get(&key), None);
        assert_eq!(create(&store, &key, "c").await.create_revision, 5);
    });
}

#[test]
fn oversized_write_has_no_effect() {
    let options = Options { object_bytes: 8, ..Options::default() };
    block_on(async {
        let (engine, store) = memory_with(options);
        let long_name = Key::new("pods", "default", "x".repeat(Key::MAX_BYTES));
        for (case, write, expected) in [
            ("name", put(&long_name, Precondition::Absent, ""), "too large"),
            ("data", put(&pod("web"), Precondition::Absent, "much too long"), "too large"),
        ] {
            assert_eq!(outcome(&store.write(write).await), expected, "{case}");
        }
        assert_eq!((store.revision(), engine.commits()), (1, 0));
        assert_eq!(create(&store, &pod("web"), "fits").await.revision, 2);
    });
}

#[test]
fn failed_commit_has_no_effect_and_next_succeeds() {
    block_on(async {
        let (engine, store) = memory();
        let key = pod("web");
        let mut watch = store.watch(Scope::resource("pods"), 1).unwrap();
        engine.fail_next_commit(CommitError::Full);
        engine.fail_next_commit(CommitError::injected());
        assert_eq!(outcome(&store.write(put(&key, Precondition::Absent, "a")).await), "full");
        assert_eq!(outcome(&store.write(put(&key, Precondition::Absent, "a")).await), "failed");
        assert_eq!((store.get(&key), store.revision()), (None, 1));
        assert_eq!(watch.try_next_batch(&mut Vec::new(), 9), Ok(0));
        assert_eq!(create(&store, &key, "a").await.revision, 2, "the revision of the failed write was not used up");
        assert_eq!(*watch.next().await.unwrap().object.data, data("a", 2));
    });
}

/// Returns a store whose commits wait for the gate, with a commit of `pod("first")` in progress.
async fn gated() -> (Store, Gate) {
    let (engine, gate) = GatedEngine::new();
    let store = Store::open(engine, Options::default()).unwrap();
    spawn(&store, put(&pod("first"), Precondition::Absent, "first")).await;
    assert_eq!(gate.wait(), 1);
    (store, gate)
}

type Answer = tokio::task::JoinHandle<Result<store::Object, WriteError>>;

/// Queues a write: when this returns, it is ordered before all later ones.
async fn spawn(store: &Store, write: Write) -> Answer {
    let store = store.clone();
    let answer = tokio::spawn(async move { store.write(write).await });
    tokio::task::yield_now().await;
    answer
}

#[test]
fn write_is_invisible_until_durable() {
    block_on(async {
        let (store, gate) = gated().await;
        assert_eq!((store.get(&pod("first")), store.revision()), (None, 1));
        assert_eq!(store.list(&Scope::resource("pods"), None, None).objects, []);
        let mut watch = store.watch(Scope::resource("pods"), 1).unwrap();
        assert_eq!(watch.try_next_batch(&mut Vec::new(), 9), Ok(0));
        gate.finish(Ok(()));
        assert_eq!(watch.next().await.unwrap().revision(), 2);
        assert!(store.get(&pod("first")).is_some());
    });
}

#[test]
fn queued_writes_are_committed_as_ordered_group() {
    block_on(async {
        let (store, gate) = gated().await;
        let web = pod("web");
        let mut answers = Vec::new();
        for write in [
            put(&web, Precondition::Absent, "a"),
            put(&web, Precondition::Absent, "b"),
            put(&web, Precondition::Revision(3), "c"),
            put(&web, Precondition::Revision(3), "d"),
            delete(&web, Precondition::Exists),
            put(&web, Precondition::Exists, "e"),
            put(&pod("other"), Precondition::Absent, "f"),
            delete(&pod("nothing"), Precondition::Any),
        ] {
            answers.push(spawn(&store, write).await);
        }
        gate.finish(Ok(()));
        assert_eq!(gate.wait(), 2, "the last state of each touched object");
        gate.finish(Ok(()));
        let mut outcomes = Vec::new();
        for answer in answers {
            outcomes.push(outcome(&answer.await.unwrap()));
        }
        assert_eq!(outcomes, ["done", "exists", "done", "conflict", "done", "not found", "done", "not found"]);
        let mut watch = store.watch(Scope::resource("pods"), 2).unwrap();
        let mut events = Vec::new();
        assert_eq!(watch.try_next_batch(&mut events, 99), Ok(4));
        let seen: Vec<_> = events.iter().map(|event| event.object.data.bytes()).collect();
        assert_eq!(seen, [data("a", 3), data("c", 4), data("deleted", 5), data("f", 6)]);
        assert_eq!(events[1].previous, Some(events[0].object.clone()));
    });
}

#[test]
fn conflict_with_a_failed_write_is_reported_as_failure() {
    block_on(async {
        let (store, gate) = gated().await;
        let first = spawn(&store, put(&pod("web"), Precondition::Absent, "a")).await;
        let second = spawn(&store, put(&pod("web"), Precondition::Absent, "b")).await;
        let unrelated = spawn(&store, delete(&pod("nothing"), Precondition::Any)).await;
        gate.finish(Ok(()));
        gate.wait();
        gate.finish(Err(CommitError::Full));
        assert_eq!(outcome(&first.await.unwrap()), "full");
        assert_eq!(outcome(&second.await.unwrap()), "full", "web does not exist after all");
        assert_eq!(outcome(&unrelated.await.unwrap()), "not found");
        assert_eq!((store.get(&pod("web")), store.revision()), (None, 2));
    });
}
