//! Tests of the transforming engine: contents of the disk, and removal of outdated forms.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{block_on, create, data, delete, fjall_options, pod, put};
use std::{fs, path::Path, sync::Arc};
use store::{
    CommitError, FjallEngine, FjallOptions, Key, MemoryEngine, OpenError, Options, Precondition, Scope, Store,
    StoredForm, TransformError, TransformedEngine, Transformer,
};

/// Transformer that adds a number to each byte and prepends the number; 0 stores data as it is. Reads the known
/// numbers.
struct Shift {
    number: u8,
    known: &'static [u8],
}

impl Transformer for Shift {
    fn is_active(&self) -> bool {
        self.number != 0
    }

    fn transform_to_storage(&self, key: &Key, data: &[u8]) -> Result<Option<Vec<u8>>, TransformError> {
        if &*key.name == "refused" {
            return Err(TransformError("no randomness".to_owned()));
        }
        let shifted = data.iter().map(|byte| byte.wrapping_add(self.number));
        Ok((self.number != 0).then(|| [self.number].into_iter().chain(shifted).collect()))
    }

    fn transform_from_storage(&self, _: &Key, stored: &[u8]) -> Result<StoredForm, TransformError> {
        match stored.split_first() {
            Some((number @ 1..32, rest)) if self.known.contains(number) => {
                let data = rest.iter().map(|byte| byte.wrapping_sub(*number)).collect();
                Ok(StoredForm { data: Some(data), is_stale: *number != self.number })
            }
            Some((number @ 1..32, _)) => Err(TransformError(format!("{number} is not known"))),
            _ => Ok(StoredForm { data: None, is_stale: self.number != 0 }),
        }
    }
}

fn open(path: &Path, number: u8, known: &'static [u8]) -> Result<Store, OpenError> {
    let engine = FjallEngine::open(path, fjall_options())?;
    Store::open(TransformedEngine::new(engine, Arc::new(Shift { number, known })), Options::default())
}

/// Returns whether a file of a directory contains these bytes.
fn is_on_disk(folder: &Path, text: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return is_on_disk(&path, text);
        }
        let mut bytes = fs::read(&path).unwrap();
        // A journal is mostly zeros.
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        bytes.windows(text.len()).any(|window| window == text)
    })
}

const TEXT: &str = "the-value-of-a-secret";

fn shifted(number: u8) -> Vec<u8> {
    TEXT.bytes().map(|byte| byte.wrapping_add(number)).collect()
}

#[test]
fn outdated_forms_are_removed_after_last_rewrite() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(folder.path(), 0, &[]).unwrap();
        create(&store, &pod("a"), TEXT).await;
        create(&store, &pod("b"), TEXT).await;
        create(&store, &pod("c"), TEXT).await;
        drop(store);
        assert!(is_on_disk(folder.path(), TEXT.as_bytes()));

        let store = open(folder.path(), 1, &[1]).unwrap();
        assert!(store.get(&pod("a")).unwrap().is_stale && is_on_disk(folder.path(), TEXT.as_bytes()));
        let first = store.write(put(&pod("a"), Precondition::Exists, TEXT)).await.unwrap();
        store.write(delete(&pod("b"), Precondition::Exists)).await.unwrap();
        assert!(!store.get(&pod("a")).unwrap().is_stale && store.get(&pod("c")).unwrap().is_stale);
        store.write(put(&pod("c"), Precondition::Exists, TEXT)).await.unwrap();
        assert!(!is_on_disk(folder.path(), TEXT.as_bytes()) && is_on_disk(folder.path(), &shifted(1)));
        let after = create(&store, &pod("d"), TEXT).await;
        assert_eq!(after.revision, first.revision + 3, "the history continues");
        assert_eq!(*after.data, *data(TEXT, after.revision));
        drop(store);

        let store = open(folder.path(), 2, &[2, 1]).unwrap();
        for object in store.list(&Scope::resource("pods"), None, None).objects {
            assert!(object.is_stale && *object.data == *data(TEXT, object.revision), "{:?}", object.key);
            store.write(put(&object.key, Precondition::Revision(object.revision), TEXT)).await.unwrap();
        }
        assert!(!is_on_disk(folder.path(), &shifted(1)), "data of the old key is removed, too");
        let revision = store.revision();
        drop(store);
        let store = open(folder.path(), 2, &[2]).unwrap();
        assert_eq!((store.revision(), store.list(&Scope::resource("pods"), None, None).objects.len()), (revision, 3));
    });
}

#[test]
fn replaced_plain_text_is_removed_on_open() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(folder.path(), 0, &[]).unwrap();
        create(&store, &pod("a"), TEXT).await;
        store.write(delete(&pod("a"), Precondition::Exists)).await.unwrap();
        drop(store);
        assert!(is_on_disk(folder.path(), TEXT.as_bytes()));
        drop(open(folder.path(), 1, &[1]).unwrap());
        assert!(!is_on_disk(folder.path(), TEXT.as_bytes()));
    });
}

#[test]
fn unreadable_objects_are_named_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(folder.path(), 1, &[1]).unwrap();
        create(&store, &pod("b"), TEXT).await;
        create(&store, &pod("a"), TEXT).await;
        drop(store);
        for known in [&[][..], &[2]] {
            let error = open(folder.path(), u8::from(!known.is_empty()) * 2, known).map(|_| ()).unwrap_err();
            let expected = "pods/default/a: 1 is not known; pods/default/b: 1 is not known";
            assert!(
                error.to_string().ends_with(expected) && error.to_string().contains("2 objects"),
                "{known:?}: {error}"
            );
        }
        let store = open(folder.path(), 1, &[1]).unwrap();
        assert_eq!(*store.get(&pod("a")).unwrap().data, *data(TEXT, 3));
    });
}

#[test]
fn long_list_of_unreadable_objects_is_truncated() {
    let engine = MemoryEngine::new();
    let store = |number, known| {
        let transformer = Arc::new(Shift { number, known });
        Store::open(TransformedEngine::new(engine.clone(), transformer), Options::default())
    };
    block_on(async {
        let encrypted = store(1, &[1]).unwrap();
        for number in 0..25 {
            create(&encrypted, &pod(&format!("{number:02}")), TEXT).await;
        }
        let error = store(0, &[]).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("25 objects") && error.ends_with("pods/default/19: 1 is not known; and 5 more"),
            "{error}"
        );
    });
}

#[test]
fn data_that_cannot_be_transformed_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(folder.path(), 1, &[1]).unwrap();
        let refused = store.write(put(&pod("refused"), Precondition::Absent, TEXT)).await;
        assert!(matches!(refused, Err(store::WriteError::Engine(_))), "{refused:?}");
        assert_eq!((store.get(&pod("refused")), store.revision()), (None, 1));
        create(&store, &pod("a"), TEXT).await;
        assert!(!is_on_disk(folder.path(), TEXT.as_bytes()));
    });
}

#[test]
fn compaction_keeps_objects_and_removes_leftovers() {
    let folder = tempfile::tempdir().unwrap();
    // A small memtable, so that the copy has journals and tables.
    let options = FjallOptions { memtable_bytes: 64 << 10, ..fjall_options() };
    let open = |number| {
        let engine = FjallEngine::open(folder.path(), options.clone()).unwrap();
        let transformer = Arc::new(Shift { number, known: &[1, 2, 3] });
        Store::open(TransformedEngine::new(engine, transformer), Options::default()).unwrap()
    };
    block_on(async {
        let store = open(1);
        for number in 0..300 {
            create(&store, &pod(&format!("{number:03}")), &TEXT.repeat(200)).await;
        }
        let revision = store.revision();
        drop(store);
        for number in [2, 3] {
            // Leftovers of a crash during a compaction.
            fs::create_dir_all(folder.path().join("database.new/keyspaces")).unwrap();
            fs::create_dir_all(folder.path().join("torn")).unwrap();
            fs::write(folder.path().join("database.new/0.jnl"), TEXT).unwrap();
            fs::write(folder.path().join("torn/0.jnl.7"), TEXT).unwrap();
            let store = open(number);
            assert!(
                !folder.path().join("database.new").exists() && !folder.path().join("torn").exists(),
                "key {number}"
            );
            let objects = store.list(&Scope::resource("pods"), None, None).objects;
            assert_eq!((objects.len(), store.revision()), (300, revision), "key {number}");
            assert!(
                objects.iter().all(|object| *object.data == *data(&TEXT.repeat(200), object.revision)),
                "key {number}"
            );
        }
    });
}

#[test]
fn failed_commit_of_a_rewrite_leaves_the_object_stale() {
    let engine = MemoryEngine::new();
    let store = |number, known| {
        let transformer = Arc::new(Shift { number, known });
        Store::open(TransformedEngine::new(engine.clone(), transformer), Options::default()).unwrap()
    };
    block_on(async {
        create(&store(1, &[1]), &pod("a"), TEXT).await;
        let rotated = store(2, &[2, 1]);
        engine.fail_next_commit(CommitError::injected());
        assert!(rotated.write(put(&pod("a"), Precondition::Exists, TEXT)).await.is_err());
        assert!(rotated.get(&pod("a")).unwrap().is_stale);
        rotated.write(put(&pod("a"), Precondition::Exists, TEXT)).await.unwrap();
        assert!(!rotated.get(&pod("a")).unwrap().is_stale);
    });
}
