//! The contract of [`Engine`], for each engine. A new engine gets a test here; `FileEngine` is a minimal one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{block_on, delete, fjall_options, pod, put, template};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};
use store::{
    Batch, BatchChange, CommitError, Engine, FjallEngine, Head, Key, MemoryEngine, OpenError, Options, Precondition,
    Record, Revision, Scope, Store, StoredForm, Template, TransformError, TransformedEngine, Transformer,
};

/// Objects by key: revision, revision of the creation, and data.
type Contents = BTreeMap<Key, (Revision, Revision, Vec<u8>)>;

fn contents_of(record: &Record) -> (Revision, Revision, Vec<u8>) {
    (record.revision, record.create_revision, record.data.to_vec())
}

/// Loads an engine, and checks that it has each object once.
fn load(engine: &mut impl Engine) -> (Head, Contents) {
    let mut contents = Contents::new();
    let head = engine.load(&mut |record| {
        let old = contents.insert(record.key.clone(), contents_of(&record));
        assert!(old.is_none(), "{} is loaded twice", record.key);
    });
    (head.unwrap(), contents)
}

fn record(name: &str, revision: Revision, create_revision: Revision) -> Record {
    Record::new(pod(name), revision, create_revision, &template(name))
}

/// Checks the contract of an engine. `create` returns a function that opens a new one again and again, with the same data.
fn check_contract<E: Engine, F: Fn() -> E>(create: impl Fn() -> F) {
    assert_eq!(load(&mut create()()), (Head::default(), Contents::new()), "a new engine is empty");
    check_batches(create());
    check_store(create());
}

/// Commits batches, and opens the engine again after each.
fn check_batches<E: Engine>(open: impl Fn() -> E) {
    let put = |record: Record| BatchChange::Put(record.into());
    let batches = [
        vec![put(record("a", 2, 2)), put(record("b", 3, 3)), put(record("c", 4, 4))],
        vec![put(record("a", 5, 2)), BatchChange::Delete(pod("b"))],
        vec![BatchChange::Delete(pod("none")), BatchChange::Delete(pod("a"))],
        vec![put(record("a", 8, 8))],
    ];
    let mut expected = Contents::new();
    for (sequence, changes) in (1..).zip(batches) {
        for change in &changes {
            match change {
                BatchChange::Put(object) => drop(expected.insert(object.key.clone(), contents_of(object))),
                BatchChange::Delete(key) => drop(expected.remove(key)),
            }
        }
        let head = Head { sequence, revision: 1 + 2 * sequence, objects: expected.len() as u64, digest: sequence };
        let mut engine = open();
        // The store loads before it commits.
        load(&mut engine);
        engine.commit(&Batch { head, changes }).unwrap();
        drop(engine);
        assert_eq!(load(&mut open()), (head, expected.clone()), "batch {sequence}");
    }
    let mut engine = open();
    let before = load(&mut engine);
    engine.compact().unwrap();
    drop(engine);
    assert_eq!(load(&mut open()), before, "compaction changes no committed data");
}

/// Writes through a store, which verifies the head when it is opened again.
fn check_store<E: Engine>(open: impl Fn() -> E) {
    let mut expected = Contents::new();
    let mut revision = 1;
    for round in 0..5 {
        let store = Store::open(open(), Options::default()).unwrap();
        assert_eq!(store.revision(), revision, "round {round}");
        let found = store.list(&Scope::resource("pods"), None, None).objects;
        let found: Contents = found.iter().map(|object| (object.key.clone(), contents_of(object))).collect();
        assert_eq!(found, expected, "round {round}");
        block_on(async {
            for number in 0..20 {
                let key = pod(&format!("{}", number % (round + 7)));
                let deletes = (number + round) % 3 == 0 && store.get(&key).is_some();
                let write = if deletes { delete(&key, Precondition::Any) } else { put(&key, Precondition::Any, "x") };
                let object = store.write(write).await.unwrap();
                revision = object.revision;
                if deletes {
                    expected.remove(&key);
                } else {
                    expected.insert(key, contents_of(&object));
                }
            }
        });
    }
}

/// Engine that writes all objects to a new file with each commit, and renames it.
struct FileEngine {
    path: PathBuf,
    records: BTreeMap<Key, Record>,
}

impl FileEngine {
    fn new(path: PathBuf) -> Self {
        Self { path, records: BTreeMap::new() }
    }

    fn save(&self, head: &Head) -> io::Result<()> {
        let mut bytes = Vec::new();
        for number in [head.sequence, head.revision, head.objects, head.digest] {
            bytes.extend(number.to_le_bytes());
        }
        for record in self.records.values() {
            let Key { resource, namespace, name } = &record.key;
            for part in [resource.as_bytes(), namespace.as_bytes(), name.as_bytes(), &record.data[..]] {
                bytes.extend((part.len() as u64).to_le_bytes());
                bytes.extend(part);
            }
            bytes.extend(record.revision.to_le_bytes());
            bytes.extend(record.create_revision.to_le_bytes());
        }
        let new = self.path.with_extension("new");
        let mut file = fs::File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(new, &self.path)
    }

    fn read(&mut self) -> io::Result<Head> {
        if !self.path.exists() {
            return Ok(Head::default());
        }
        let bytes = fs::read(&self.path)?;
        let mut rest = bytes.as_slice();
        let [sequence, revision, objects, digest] = [(); 4].map(|()| read_number(&mut rest));
        let head = Head { sequence: sequence?, revision: revision?, objects: objects?, digest: digest? };
        while !rest.is_empty() {
            let [resource, namespace, name, data] = [(); 4].map(|()| read_part(&mut rest));
            let text = |part: io::Result<Vec<u8>>| part.and_then(|p| String::from_utf8(p).map_err(io::Error::other));
            let key = Key::new(text(resource)?, text(namespace)?, text(name)?);
            let (revision, create_revision) = (read_number(&mut rest)?, read_number(&mut rest)?);
            let record = Record::new(key.clone(), revision, create_revision, &Template::from(data?));
            self.records.insert(key, record);
        }
        Ok(head)
    }
}

fn read_number(bytes: &mut &[u8]) -> io::Result<u64> {
    let mut number = [0; 8];
    bytes.read_exact(&mut number)?;
    Ok(u64::from_le_bytes(number))
}

fn read_part(bytes: &mut &[u8]) -> io::Result<Vec<u8>> {
    let length = usize::try_from(read_number(bytes)?).map_err(io::Error::other)?;
    let mut part = vec![0; length];
    bytes.read_exact(&mut part)?;
    Ok(part)
}

impl Engine for FileEngine {
    fn path(&self) -> &Path {
        &self.path
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, OpenError> {
        let head = self.read().map_err(|source| OpenError::Io { path: self.path.clone(), source })?;
        self.records.values().cloned().for_each(each);
        Ok(head)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        for change in &batch.changes {
            match change {
                BatchChange::Put(object) => drop(self.records.insert(object.key.clone(), Record::clone(object))),
                BatchChange::Delete(key) => drop(self.records.remove(key)),
            }
        }
        self.save(&batch.head).map_err(CommitError::Write)
    }
}

/// Transformer that stores the bytes in reverse order.
struct Reversed;

impl Transformer for Reversed {
    fn is_active(&self) -> bool {
        true
    }

    fn transform_to_storage(&self, _: &Key, data: &[u8]) -> Result<Option<Vec<u8>>, TransformError> {
        Ok(Some(data.iter().rev().copied().collect()))
    }

    fn transform_from_storage(&self, _: &Key, stored: &[u8]) -> Result<StoredForm, TransformError> {
        Ok(StoredForm { data: Some(stored.iter().rev().copied().collect()), is_stale: false })
    }
}

#[test]
fn memory_engine_keeps_the_contract() {
    check_contract(|| {
        let engine = MemoryEngine::new();
        move || engine.clone()
    });
}

#[test]
fn fjall_engine_keeps_the_contract() {
    check_contract(|| {
        let folder = tempfile::tempdir().unwrap();
        move || FjallEngine::open(folder.path(), fjall_options()).unwrap()
    });
}

#[test]
fn transformed_engine_keeps_the_contract() {
    check_contract(|| {
        let engine = MemoryEngine::new();
        move || TransformedEngine::new(engine.clone(), Arc::new(Reversed))
    });
}

#[test]
fn file_engine_keeps_the_contract() {
    check_contract(|| {
        let folder = tempfile::tempdir().unwrap();
        move || FileEngine::new(folder.path().join("objects"))
    });
}
