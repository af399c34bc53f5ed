//! Tests with a full disk.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a skipped test prints the reason")]

#[cfg(test)]
mod common;

use common::{block_on, outcome, pod, put};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::{fs, path::Path, time::Duration};
use store::{FjallEngine, FjallOptions, Options, Precondition, Scope, Store};
use tempfile::TempDir;

/// File system of a few MiB, unmounted on drop.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts it; `None`, with the reason printed, if this is not possible.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        match mount(Some("store-test"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some("size=4m")) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                println!("skipped: a tmpfs cannot be mounted here: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}

/// Fills a small disk, then frees space: every write succeeds or is refused as `Full`, and nothing is lost.
fn check(reserve_bytes: u64, memtable_bytes: u64) {
    let Some(disk) = SmallDisk::new() else { return };
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let options = FjallOptions { reserve_bytes, memtable_bytes, reopen_backoff: Duration::ZERO };
    let open = || {
        let engine = FjallEngine::open(disk.path().join("store"), options.clone()).unwrap();
        Store::open(engine, Options::default()).unwrap()
    };
    let store = open();
    block_on(async {
        let text = "x".repeat(10_000);
        let mut expected = 0;
        let mut refused = 0;
        for number in 0_usize.. {
            let answer = store.write(put(&pod(&format!("{number:04}")), Precondition::Absent, &text)).await;
            match outcome(&answer) {
                "done" => expected += 1,
                "full" => refused += 1,
                other => panic!("{other}: {answer:?}"),
            }
            assert_eq!(store.revision(), 1 + expected, "write {number}");
            if refused == 5 {
                break;
            }
        }
        assert!(expected > 20, "only {expected} writes fitted");
        assert_eq!(store.list(&Scope::resource("pods"), None, None).objects.len() as u64, expected, "reads go on");
    });
    drop(store);
    let store = open();
    block_on(async {
        let text = "x".repeat(10_000);
        let mut expected = store.revision() - 1;
        assert_eq!(
            store.list(&Scope::resource("pods"), None, None).objects.len() as u64,
            expected,
            "a full disk is read"
        );
        // The recovery may have freed space, for example of a table that was not completed.
        for number in 0.. {
            let answer = store.write(put(&pod(&format!("again-{number}")), Precondition::Absent, &text)).await;
            match outcome(&answer) {
                "full" => break,
                "done" if number < 1000 => expected += 1,
                other => panic!("{other}: {answer:?}"),
            }
        }
        fs::remove_file(&ballast).unwrap();
        let after = store.write(put(&pod("after"), Precondition::Absent, &text)).await.unwrap();
        assert_eq!(after.revision, 2 + expected, "writes continue once space is free");
    });
    let before = store.list(&Scope::resource("pods"), None, None);
    drop(store);
    let after = open().list(&Scope::resource("pods"), None, None);
    assert_eq!((after.revision, after.objects), (before.revision, before.objects));
}

#[test]
fn writes_are_refused_below_disk_reserve() {
    check(1 << 20, 1 << 20);
}

#[test]
fn journal_write_failure_is_recovered() {
    check(0, 64 << 20);
}

#[test]
fn table_write_failure_is_recovered() {
    check(0, 300 << 10);
}
