//! Tests of durability and damage detection of the embedded engine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{block_on, create, data, delete, fjall, fjall_options, memory, pod, put};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use store::{FjallEngine, FjallOptions, OpenError, Options, Precondition, Scope, Store};
use tempfile::TempDir;

/// Creates and closes a store with this many objects.
fn filled(objects: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = fjall(folder.path()).unwrap();
    block_on(async {
        for number in 0..objects {
            create(&store, &pod(&format!("pod-{number:03}")), "x").await;
        }
    });
    folder
}

fn journal(folder: &Path) -> PathBuf {
    folder.join("database/0.jnl")
}

/// Returns the contents of all files without trailing zeros.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

/// Returns the ends of the batches in a journal: after each trailer.
fn batch_ends(journal: &Path) -> Vec<usize> {
    let bytes = fs::read(journal).unwrap();
    let windows = bytes.windows(4).enumerate();
    windows.filter(|(_, window)| window == b"FJL\x03").map(|(index, _)| index + 4).collect()
}

/// Checks that opening fails with this message and changes nothing.
#[track_caller]
fn check_refused(folder: &Path, expected: &str) {
    let before = contents(folder);
    let error = fjall(folder).map(|_| "a store").unwrap_err();
    let message = error.to_string();
    assert!(message.contains(expected), "{message:?} should contain {expected:?}");
    assert!(contents(folder) == before, "a store that is refused is left as it is");
}

#[test]
fn acknowledged_writes_survive_reopen() {
    let folder = filled(3);
    block_on(async {
        let store = fjall(folder.path()).unwrap();
        assert_eq!(store.revision(), 4);
        store.write(put(&pod("pod-001"), Precondition::Revision(3), "new")).await.unwrap();
        store.write(delete(&pod("pod-002"), Precondition::Exists)).await.unwrap();
        drop(store);
        let store = fjall(folder.path()).unwrap();
        assert_eq!(store.revision(), 6);
        let listing = store.list(&Scope::resource("pods"), None, None);
        let found: Vec<_> = listing
            .objects
            .iter()
            .map(|object| (&*object.key.name, object.revision, object.create_revision, object.data.bytes()))
            .collect();
        let expected = [("pod-000", 2, 2, data("x", 2).into()), ("pod-001", 5, 3, data("new", 5).into())];
        assert_eq!(found, expected);
        assert!(store.watch(Scope::resource("pods"), 5).is_err(), "history is not kept");
        let mut watch = store.watch(Scope::resource("pods"), 6).unwrap();
        assert_eq!(create(&store, &pod("next"), "x").await.revision, 7);
        assert_eq!(watch.next().await.unwrap().revision(), 7);
    });
}

#[test]
fn objects_survive_flush_from_journal_to_table() {
    let folder = tempfile::tempdir().unwrap();
    let options = FjallOptions { memtable_bytes: 16 << 10, ..fjall_options() };
    let open = || Store::open(FjallEngine::open(folder.path(), options.clone()).unwrap(), Options::default()).unwrap();
    block_on(async {
        let mut expected = 0;
        for round in 0..3 {
            let store = open();
            assert_eq!(store.list(&Scope::resource("pods"), None, None).objects.len(), expected, "round {round}");
            for number in 0..200 {
                let text = format!("{round}-{number}").repeat(50);
                store.write(put(&pod(&format!("{number}")), Precondition::Any, &text)).await.unwrap();
            }
            for number in 0..100 {
                store.write(delete(&pod(&format!("{number}")), Precondition::Exists)).await.unwrap();
            }
            expected = 100;
        }
        assert_eq!(open().revision(), 1 + 3 * 300);
    });
}

#[test]
fn directory_lock_refuses_second_open() {
    let folder = filled(1);
    let store = fjall(folder.path()).unwrap();
    let error = fjall(folder.path()).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(store);
    fjall(folder.path()).unwrap();
}

#[test]
fn newer_format_is_refused() {
    let folder = filled(1);
    fs::write(folder.path().join("format"), "store-format 7\n").unwrap();
    check_refused(folder.path(), "has format 7, and this version reads formats up to 1");
    fs::write(folder.path().join("format"), "something else").unwrap();
    check_refused(folder.path(), "unknown content \"something else\"");
    fs::remove_file(folder.path().join("format")).unwrap();
    check_refused(folder.path(), "format is damaged: it is missing");
}

#[test]
fn interrupted_creation_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("database.new")).unwrap();
    fs::write(folder.path().join("database.new/0.jnl"), "").unwrap();
    let store = fjall(folder.path()).unwrap();
    assert_eq!(store.revision(), 1);
}

#[test]
fn torn_batch_is_cut_and_backed_up() {
    let folder = filled(3);
    let ends = batch_ends(&journal(folder.path()));
    let end = ends[ends.len() - 1] as u64;
    // The start of a batch of two items, whose pages did not all reach the disk.
    let torn = [&[1, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1][..], &[0; 5000], b"rest"].concat();
    let file = fs::File::options().write(true).open(journal(folder.path())).unwrap();
    file.write_all_at(&torn, end).unwrap();
    let store = fjall(folder.path()).unwrap();
    assert_eq!(store.revision(), 4);
    let kept = fs::read(folder.path().join(format!("torn/0.jnl.{end}"))).unwrap();
    assert_eq!(kept, torn);
    block_on(create(&store, &pod("next"), "x"));
    drop(store);
    assert_eq!(fjall(folder.path()).unwrap().revision(), 5);
}

#[test]
fn last_batch_torn_by_power_loss_is_dropped() {
    let folder = filled(3);
    let note = folder.path().join("acknowledged");
    let older = fs::read(&note).unwrap();
    block_on(create(&fjall(folder.path()).unwrap(), &pod("last"), "x"));
    let ends = batch_ends(&journal(folder.path()));
    let file = fs::File::options().write(true).open(journal(folder.path())).unwrap();
    file.write_all_at(&[0; 8], ends[2] as u64 + 50).unwrap();
    check_refused(folder.path(), "batch 4 was acknowledged, and the last whole one is 3");
    // The acknowledged sequence is not synced: a power loss may restore an older one.
    fs::write(&note, older).unwrap();
    assert_eq!(fjall(folder.path()).unwrap().revision(), 4);
    assert_eq!(fjall(folder.path()).unwrap().get(&pod("last")), None);
}

#[test]
fn rotated_journals_form_one_history() {
    let folder = tempfile::tempdir().unwrap();
    let text = "x".repeat(256 << 10);
    let written = 300;
    block_on(async {
        let store = fjall(folder.path()).unwrap();
        for number in 0..written {
            store.write(put(&pod(&(number % 7).to_string()), Precondition::Any, &text)).await.unwrap();
        }
    });
    assert!(folder.path().join("database/1.jnl").exists(), "more than a journal was written");
    let store = fjall(folder.path()).unwrap();
    assert_eq!(store.revision(), 1 + written);
    assert_eq!(store.list(&Scope::resource("pods"), None, None).objects.len(), 7);
}

#[test]
fn damage_in_the_middle_of_a_journal_is_refused() {
    for index in 0..3 {
        let folder = filled(5);
        let ends = batch_ends(&journal(folder.path()));
        let file = fs::File::options().write(true).open(journal(folder.path())).unwrap();
        // A tag, a byte of an object, and a trailer.
        let offset = [ends[1], ends[1] + 60, ends[2] - 1][index];
        file.write_all_at(&[0xee], offset as u64).unwrap();
        check_refused(folder.path(), "followed by others");
    }
}

#[test]
fn journal_without_acknowledged_batches_is_refused() {
    let folder = filled(5);
    let ends = batch_ends(&journal(folder.path()));
    let file = fs::File::options().write(true).open(journal(folder.path())).unwrap();
    for (length, expected) in [
        (ends[4] - 1, "batch 5 was acknowledged, and the last whole one is 4"),
        (ends[3], "batch 5 was acknowledged, and the last whole one is 4"),
        (ends[2] + 7, "batch 5 was acknowledged, and the last whole one is 3"),
        (0, "batch 5 was acknowledged, and the last one found is 0"),
    ] {
        file.set_len(length as u64).unwrap();
        let error = fjall(folder.path()).map(|_| "a store").unwrap_err().to_string();
        assert!(error.contains(expected), "{length}: {error}");
        assert_eq!(fs::metadata(journal(folder.path())).unwrap().len(), length as u64, "{length}");
    }
}

#[test]
fn missing_batch_in_journal_is_detected() {
    let folder = filled(5);
    let path = journal(folder.path());
    let ends = batch_ends(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes.drain(ends[1]..ends[2]);
    fs::write(&path, bytes).unwrap();
    check_refused(folder.path(), "a batch is missing");
}

#[test]
fn missing_database_is_not_recreated() {
    let folder = filled(1);
    fs::remove_dir_all(folder.path().join("database")).unwrap();
    check_refused(folder.path(), "database is damaged: it is missing");
}

#[test]
fn incomplete_database_is_refused() {
    for (part, expected) in [
        ("0.jnl", "it has no journal"),
        ("keyspaces/1", "keyspaces/1/current is damaged: it is missing"),
        ("keyspaces/1/current", "keyspaces/1/current is damaged: it is missing"),
        ("keyspaces/0/current", "keyspaces/0/current is damaged: it is missing"),
        ("keyspaces/1/v0", "keyspaces/1/v0 is damaged: it is missing"),
    ] {
        let folder = filled(3);
        let path = folder.path().join("database").join(part);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        check_refused(folder.path(), expected);
        check_refused(folder.path(), expected);
    }
}

#[test]
fn damaged_table_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = FjallOptions { memtable_bytes: 4 << 10, ..fjall_options() };
    let store = Store::open(FjallEngine::open(folder.path(), options).unwrap(), Options::default()).unwrap();
    block_on(async {
        for number in 0..100 {
            create(&store, &pod(&format!("{number}")), &"x".repeat(1000)).await;
        }
    });
    drop(store);
    let tables = folder.path().join("database/keyspaces/1/tables");
    for table in fs::read_dir(tables).unwrap() {
        let path = table.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 3;
        bytes[middle] ^= 0xff;
        fs::write(&path, bytes).unwrap();
    }
    let error = fjall(folder.path()).map(|_| "a store").unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

#[test]
fn lost_object_is_detected_on_open() {
    block_on(async {
        let (engine, store) = memory();
        create(&store, &pod("a"), "x").await;
        create(&store, &pod("b"), "x").await;
        drop(store);
        Store::open(engine.clone(), Options::default()).unwrap();
        assert!(engine.lose(&pod("a")));
        let error = Store::open(engine, Options::default()).unwrap_err();
        assert!(error.to_string().contains("1 objects up to revision 3 were found where 2"), "{error}");
    });
}
