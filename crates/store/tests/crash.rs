//! Crash test: the process is killed at random moments while it writes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{data, delete, fjall_options, pod, put};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use store::{FjallEngine, FjallOptions, Options, Precondition, Revision, Scope, Store};

const FOLDER: &str = "STORE_CRASH_FOLDER";
const WRITERS: usize = 6;
const LIVES: u32 = 20;

fn open(folder: &Path) -> Store {
    // A small memtable, so that journals are flushed to tables meanwhile.
    let options = FjallOptions { memtable_bytes: 64 << 10, ..fjall_options() };
    Store::open(FjallEngine::open(folder, options).unwrap(), Options::default()).unwrap()
}

/// The child process that [`acknowledged_writes_survive_and_revisions_are_unique`] kills; no test of its own.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    print_line("opening");
    let store = open(folder.as_ref());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for writer in 0..WRITERS {
        runtime.spawn(write_forever(store.clone(), writer));
    }
    runtime.block_on(std::future::pending::<()>());
}

/// Returns the name of the object that a writer writes in a round.
fn name(writer: usize, round: usize) -> String {
    format!("{writer}-{}", round % 7)
}

/// Writes objects of this writer one after the other, and prints each once it is acknowledged.
async fn write_forever(store: Store, writer: usize) {
    let text = "x".repeat(500);
    for round in 0_usize.. {
        let key = pod(&name(writer, round));
        let deletes = round % 5 == 0 && store.get(&key).is_some();
        let write = if deletes { delete(&key, Precondition::Any) } else { put(&key, Precondition::Any, &text) };
        let revision = store.write(write).await.unwrap().revision;
        let operation = if deletes { "deleted" } else { "put" };
        print_line(&format!("ack {operation} {writer} {round} {revision}"));
    }
}

/// Prints a line with one system call, so that it is atomic.
fn print_line(line: &str) {
    std::io::stdout().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

struct Ack {
    deleted: bool,
    writer: usize,
    round: usize,
    revision: Revision,
}

#[test]
fn acknowledged_writes_survive_and_revisions_are_unique() {
    let folder = tempfile::tempdir().unwrap();
    let mut revisions = BTreeSet::new();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for life in 0..LIVES {
        // xorshift: when each child is killed.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let end = if life % 4 == 0 {
            End::Opening(Duration::from_micros(seed % 15_000))
        } else {
            End::Writing(usize::try_from(seed % 300).unwrap())
        };
        let acknowledged = live(folder.path(), end);
        for ack in &acknowledged {
            let Ack { revision, .. } = ack;
            assert!(revisions.insert(*revision), "life {life}: revision {revision} was used before");
        }
        verify(folder.path(), &acknowledged, revisions.last().copied().unwrap_or(1));
        // Durable but unacknowledged writes have their revisions, too.
        let store = open(folder.path());
        revisions.extend(store.list(&Scope::resource("pods"), None, None).objects.iter().map(|object| object.revision));
    }
    assert!(revisions.len() > 500, "only {} writes in {LIVES} lives", revisions.len());
}

/// When a child is killed.
#[derive(Clone, Copy)]
enum End {
    /// After this time since it began to open the store.
    Opening(Duration),
    /// After this number of acknowledged writes.
    Writing(usize),
}

/// Runs a child, kills it, and returns its acknowledged writes.
fn live(folder: &Path, end: End) -> Vec<Ack> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let ["ack", operation, writer, round, revision] = line.split(' ').collect::<Vec<_>>()[..] {
            acknowledged.push(Ack {
                deleted: operation == "deleted",
                writer: writer.parse().unwrap(),
                round: round.parse().unwrap(),
                revision: revision.parse().unwrap(),
            });
        }
        let over = match end {
            End::Opening(_) => line == "opening",
            End::Writing(writes) => acknowledged.len() >= writes,
        };
        if over || started.elapsed() > Duration::from_secs(20) {
            if let End::Opening(delay) = end {
                std::thread::park_timeout(delay);
            }
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    acknowledged
}

fn verify(folder: &Path, acknowledged: &[Ack], newest: Revision) {
    let store = open(folder);
    assert!(store.revision() >= newest, "revision {newest} was acknowledged, {} is found", store.revision());
    let mut last_of_object = BTreeMap::new();
    let mut last_round = BTreeMap::new();
    for ack in acknowledged {
        last_of_object.insert(name(ack.writer, ack.round), ack);
        last_round.insert(ack.writer, ack.round);
    }
    for (name_of, ack) in last_of_object {
        let found = store.get(&pod(&name_of)).map(|object| object.revision);
        // The write after the last acknowledged one may be durable, or not.
        let in_doubt = name_of == name(ack.writer, last_round[&ack.writer] + 1);
        let expected = (!ack.deleted).then_some(ack.revision);
        let later = in_doubt && found.is_none_or(|revision| revision > ack.revision);
        assert!(found == expected || later, "{name_of} was acknowledged at {expected:?}, and is at {found:?}");
    }
    for object in store.list(&Scope::resource("pods"), None, None).objects {
        assert_eq!(*object.data, data(&"x".repeat(500), object.revision), "{:?}", object.key);
    }
}
