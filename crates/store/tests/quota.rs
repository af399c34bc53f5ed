//! Tests of the quota, and of the memory cost of deleted objects' history.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{block_on, memory_with, outcome, pod, put};
use proptest::prelude::*;
use store::{Key, MemoryEngine, Object, Options, Precondition, QuotaAllowance, Scope, Store, Template, Write};

const QUOTA: u64 = 20_000;

fn options() -> Options {
    Options { quota_bytes: QUOTA, ..Options::default() }
}

/// Computes the used bytes from all objects, independently of the store. A header of 16 bytes precedes each object's
/// data.
fn recomputed(store: &Store) -> u64 {
    let all = ["pods", "nodes"].map(|resource| store.list(&Scope::resource(resource), None, None).objects);
    let key = |key: &Key| key.resource.len() + key.namespace.len() + key.name.len();
    all.iter().flatten().map(|object: &Object| (key(&object.key) + object.data.len() + 16 + 200) as u64).sum()
}

#[test]
fn writes_beyond_quota_are_refused_until_deletes() {
    block_on(async {
        let (engine, store) = memory_with(options());
        let text = "x".repeat(1000);
        let mut names = Vec::new();
        loop {
            let key = pod(&format!("p{}", names.len()));
            let (before, commits) = (store.revision(), engine.commits());
            let answer = store.write(put(&key, Precondition::Absent, &text)).await;
            if outcome(&answer) == "no space" {
                assert_eq!((store.revision(), engine.commits(), store.get(&key)), (before, commits, None));
                break;
            }
            assert_eq!(outcome(&answer), "done");
            names.push(key);
        }
        assert_eq!(names.len(), 16);
        assert!(*store.quota_alarm().borrow());
        let grown = "x".repeat(2000);
        assert_eq!(outcome(&store.write(put(&names[0], Precondition::Exists, &grown)).await), "no space");
        assert_eq!(outcome(&store.write(put(&names[0], Precondition::Exists, "small")).await), "done");
        let gone = Write::delete(names[1].clone(), Precondition::Exists, Template::from("x".repeat(10_000)));
        assert_eq!(outcome(&store.write(gone).await), "done");
        assert!(!*store.quota_alarm().borrow(), "the alarm clears by itself");
        assert_eq!(outcome(&store.write(put(&pod("after"), Precondition::Absent, &text)).await), "done");
    });
}

#[test]
fn components_may_use_the_reserve() {
    block_on(async {
        let (_, store) = memory_with(options());
        let fill = async |name: &str, allowance: QuotaAllowance| {
            let mut count = 0_u64;
            for number in 0..1000 {
                let write = put(&pod(&format!("{name}{number}")), Precondition::Absent, "").with_allowance(allowance);
                if outcome(&store.write(write).await) != "done" {
                    break;
                }
                count += 1;
            }
            count
        };
        let (clients, components) = (fill("a", QuotaAllowance::Quota).await, fill("b", QuotaAllowance::Reserve).await);
        assert!(store.usage().bytes > QUOTA && store.usage().bytes <= QUOTA + QUOTA / 10);
        assert!(clients / 12 <= components && components <= clients / 8, "{clients} {components}");
        let write = put(&pod("c"), Precondition::Absent, &"x".repeat(5000)).with_allowance(QuotaAllowance::Unlimited);
        assert_eq!(outcome(&store.write(write).await), "done");
    });
}

#[test]
fn history_of_large_objects_is_bounded_in_bytes() {
    const LIMIT: usize = 1 << 20;
    block_on(async {
        let (_, store) = memory_with(Options { watch_cache_bytes: LIMIT, ..Options::default() });
        let (keys, large): (Vec<Key>, _) =
            ((0..40).map(|number| pod(&number.to_string())).collect(), "x".repeat(100_000));
        for key in &keys {
            store.write(put(key, Precondition::Absent, &large)).await.unwrap();
        }
        // Each event is small, but refers to the large previous object.
        let filled = store.revision();
        for key in &keys {
            store.write(put(key, Precondition::Exists, "")).await.unwrap();
        }
        let kept = store.revision() - store.oldest_revision("pods").max(filled);
        assert!((5..=10).contains(&kept), "{kept} events that keep 100 kB each are within 1 MiB");
        // The same, with one resource per object.
        let mut last = Vec::new();
        for number in 0..40 {
            let key = Key::new(format!("kind{number}"), "", "o");
            store.write(put(&key, Precondition::Absent, &large)).await.unwrap();
            last.push(store.write(Write::delete(key, Precondition::Exists, Template::from(""))).await.unwrap());
        }
        let kept = last.iter().filter(|last| store.oldest_revision(&last.key.resource) < last.revision).count();
        assert!(kept <= 10, "{kept} resources keep an event that holds 100 kB");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize, QuotaAllowance),
    Delete(usize),
    Together(Vec<(usize, usize)>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let allowance =
        prop::sample::select(vec![QuotaAllowance::Quota, QuotaAllowance::Reserve, QuotaAllowance::Unlimited]);
    prop_oneof![
        6 => (0..12_usize, 0..5000_usize, allowance).prop_map(|(key, size, allowance)| Step::Put(key, size, allowance)),
        3 => (0..12_usize).prop_map(Step::Delete),
        3 => prop::collection::vec((0..12_usize, 0..5000_usize), 1..8).prop_map(Step::Together),
        1 => Just(Step::Reopen),
    ]
}

fn key(index: usize) -> Key {
    if index < 8 { pod(&"p".repeat(index + 1)) } else { Key::new("nodes", "", index.to_string()) }
}

async fn play(engine: MemoryEngine, steps: Vec<Step>) {
    let mut store = Store::open(engine.clone(), options()).unwrap();
    for step in steps {
        let before = store.usage().bytes;
        match step {
            Step::Put(index, size, allowance) => {
                let write = put(&key(index), Precondition::Any, &"x".repeat(size)).with_allowance(allowance);
                let (old, revision) = (store.get(&key(index)), store.revision());
                let answer = store.write(write).await;
                let grew = store.usage().bytes > before;
                let limit = if allowance == QuotaAllowance::Quota { QUOTA } else { QUOTA + QUOTA / 10 };
                assert!(!grew || allowance == QuotaAllowance::Unlimited || store.usage().bytes <= limit);
                if answer.is_err() {
                    assert_eq!(
                        (store.get(&key(index)), store.revision(), store.usage().bytes),
                        (old, revision, before)
                    );
                }
            }
            Step::Delete(index) => {
                let existed = store.get(&key(index)).is_some();
                let deleted = store.write(Write::delete(key(index), Precondition::Any, Template::from("gone"))).await;
                assert_eq!(deleted.is_ok(), existed);
            }
            Step::Together(writes) => {
                let tasks: Vec<_> = writes
                    .into_iter()
                    .map(|(index, size)| {
                        let (store, write) = (store.clone(), put(&key(index), Precondition::Any, &"x".repeat(size)));
                        tokio::spawn(async move { store.write(write).await })
                    })
                    .collect();
                for task in tasks {
                    let _ = task.await.unwrap();
                }
                assert!(store.usage().bytes <= before.max(QUOTA));
            }
            Step::Reopen => {
                drop(store);
                store = Store::open(engine.clone(), options()).unwrap();
            }
        }
        assert_eq!(store.usage().bytes, recomputed(&store));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn usage_is_the_sum_of_all_objects(steps in prop::collection::vec(step(), 1..60)) {
        block_on(play(MemoryEngine::new(), steps));
    }
}
