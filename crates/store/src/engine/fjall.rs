//! Embedded engine: [fjall](https://docs.rs/fjall), a log-structured merge tree.
//!
//! # Crash recovery
//!
//! A batch is one batch of fjall's journal (write-ahead log), with the new [`Head`] in it, and `fdatasync`ed before it
//! is acknowledged. On opening, four checks precede fjall's access to its files, and one follows:
//!
//! - fjall's files are complete (`layout.rs`);
//! - every batch in the journals has its checksum, and their sequences have no gap (`journal.rs`, `recovery.rs`);
//! - only the newest journal may end in an incomplete batch, and nothing may follow it: that is the torn tail of a
//!   crash, which was never acknowledged. It is copied to `torn/`, cut, and logged;
//! - the last complete batch is not older than the last one that is known to be acknowledged (`directory.rs`);
//! - the loaded data has the number of objects and the digest of the head (the store checks that).
//!
//! Everything else is [`OpenError::Damaged`], and the files are not changed. One case cannot be detected: after a
//! power loss, an acknowledged last batch that was corrupted on disk looks like a torn one.
//!
//! # Failed commits
//!
//! fjall refuses all writes after an I/O error. The engine then closes the database, cuts unacknowledged batches from
//! the journal (fjall flushes the rest of a failed batch when it closes, which may complete it), and reopens the
//! database before the next commit. To make that rare, no batch is started when the disk has less space than
//! [`FjallOptions::reserve_bytes`]: fjall's own flushes and compactions need some, and fail permanently without it.
//! (fjall blocks commits without a limit while four memtables wait to be flushed. With one worker thread, which also
//! seals the memtables, that many never accumulate, whether the worker lives or has failed.)
//!
//! # Replaced values
//!
//! Replaced values stay in journals and tables until the engine is compacted (`compaction.rs`).

mod codec;
mod compaction;
mod directory;
mod journal;
mod layout;
mod recovery;

use self::{
    codec::HEAD_KEY,
    directory::{Directory, remove_tree, sync_directory},
};
use super::{Batch, BatchChange, CommitError, Engine, Head};
use crate::{OpenError, Record};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode};
use std::{
    fs,
    io::{self, ErrorKind},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

/// Limits of the engine.
#[derive(Clone, Debug)]
pub struct FjallOptions {
    /// Free disk space below which writes are refused as [`CommitError::Full`], in bytes.
    pub reserve_bytes: u64,
    /// Size of the memtable, in bytes.
    pub memtable_bytes: u64,
    /// Pause after a failed reopening of the database.
    pub reopen_backoff: Duration,
}

impl Default for FjallOptions {
    fn default() -> Self {
        Self { reserve_bytes: 32 << 20, memtable_bytes: 4 << 20, reopen_backoff: Duration::from_millis(250) }
    }
}

/// Size of the block cache. Blocks are read once, when the store is opened: a cache has little use.
const CACHE_BYTES: u64 = 1 << 20;
const CACHED_FILES: usize = 32;
/// fjall's minimum.
const JOURNAL_BYTES: u64 = 64 << 20;
const KEYSPACE: &str = "objects";

/// Engine that stores objects in a local directory.
pub struct FjallEngine {
    directory: Directory,
    options: FjallOptions,
    /// `None` after a failure.
    database: Option<Open>,
    /// Head of the acknowledged state.
    head: Head,
    /// Time of the next attempt to reopen the database.
    reopen_after: Option<Instant>,
}

struct Open {
    objects: Keyspace,
    database: Database,
}

impl FjallEngine {
    /// Opens or creates the store in a directory.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; an existing store is unchanged.
    pub fn open(path: impl AsRef<Path>, options: FjallOptions) -> Result<Self, OpenError> {
        let directory = Directory::open(path.as_ref())?;
        let acknowledged = directory.acknowledged()?;
        if !directory.database().try_exists().map_err(OpenError::io(directory.database()))? {
            if acknowledged > 0 {
                return Err(OpenError::damaged(directory.database(), "it is missing"));
            }
            create(&directory, &options)?;
        }
        layout::check(&directory.database())?;
        recovery::recover(&directory, acknowledged)?;
        let database = open(&directory.database(), &options)?;
        let head = read_head(&directory, &database)?;
        if head.sequence < acknowledged {
            let detail = format!("batch {acknowledged} was acknowledged, and the last one found is {}", head.sequence);
            return Err(OpenError::damaged(directory.database(), detail));
        }
        // Left by a compaction that a crash interrupted.
        remove_tree(&directory.new_database()).map_err(OpenError::io(directory.new_database()))?;
        Ok(Self { directory, options, database: Some(database), head, reopen_after: None })
    }

    /// Reopens the database after a failure, at exactly the acknowledged state.
    fn reopen(&mut self) -> Result<Open, CommitError> {
        let path = self.directory.database();
        if self.reopen_after.is_some_and(|moment| Instant::now() < moment) {
            let waiting = io::Error::new(ErrorKind::WouldBlock, "failed a moment ago, and is left alone for a while");
            return Err(CommitError::Reopen(Box::new(OpenError::io(path)(waiting))));
        }
        let reopened = recovery::cut_unacknowledged(&self.directory, self.head.sequence)
            .and_then(|()| open(&path, &self.options))
            .and_then(|database| {
                let head = read_head(&self.directory, &database)?;
                if head == self.head {
                    return Ok(database);
                }
                let detail =
                    format!("batch {} was acknowledged, batch {} was found", self.head.sequence, head.sequence);
                Err(OpenError::damaged(&path, detail))
            });
        self.reopen_after = reopened.is_err().then(|| Instant::now() + self.options.reopen_backoff);
        match reopened {
            Err(OpenError::Io { source, .. }) if is_full(&source) => Err(CommitError::Full),
            Err(error) => Err(CommitError::Reopen(Box::new(error))),
            Ok(database) => {
                tracing::info!(path = %path.display(), "reopened database after failure");
                Ok(database)
            }
        }
    }

    /// Replaces the database by its compacted copy, or keeps the old one after a failure.
    fn replace_by_copy(&mut self) -> Result<(), CommitError> {
        // Closed first, since its files are moved.
        self.database = None;
        compaction::exchange(&self.directory).map_err(|error| CommitError::Reopen(Box::new(error)))?;
        match self.reopen() {
            Ok(database) => self.database = Some(database),
            Err(error) => {
                compaction::exchange(&self.directory).map_err(|error| CommitError::Reopen(Box::new(error)))?;
                return Err(error);
            }
        }
        compaction::remove_replaced(&self.directory)
    }

    /// Refuses a write if the disk may have too little space to finish it.
    fn check_free_space(&self) -> Result<(), CommitError> {
        let free = self.free_bytes().map_err(CommitError::Write)?;
        if free < self.options.reserve_bytes { Err(CommitError::Full) } else { Ok(()) }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let statistics = nix::sys::statvfs::statvfs(self.directory.path())?;
        Ok(statistics.blocks_available().saturating_mul(statistics.fragment_size()))
    }

    /// Converts the error of a write. A table that does not fit on the disk poisons the database, which does not tell the cause.
    fn write_error(&self, error: fjall::Error) -> CommitError {
        let is_poisoned = matches!(error, fjall::Error::Poisoned);
        let has_no_room = || self.free_bytes().is_ok_and(|free| free < self.options.memtable_bytes);
        match io_error(error) {
            error if is_full(&error) => CommitError::Full,
            _ if is_poisoned && has_no_room() => CommitError::Full,
            error => CommitError::Write(error),
        }
    }

    /// Writes a batch. After a failure, the database is closed, and no part of the batch is left in it.
    fn write(&mut self, batch: &Batch) -> Result<(), fjall::Error> {
        let Some(database) = &self.database else {
            return Err(fjall::Error::Poisoned);
        };
        let written = database.write(batch);
        if written.is_err() {
            self.database = None;
            // Repeated before the next commit; done at once, so that the batch does not reappear if the process ends
            // here.
            if let Err(error) = recovery::cut_unacknowledged(&self.directory, self.head.sequence) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to truncate failed batch from journal"
                );
            }
        }
        written
    }
}

impl Open {
    fn write(&self, batch: &Batch) -> Result<(), fjall::Error> {
        let mut write = self.database.batch().durability(Some(PersistMode::SyncData));
        let too_long = || fjall::Error::Io(io::Error::new(ErrorKind::InvalidInput, "a key is too long"));
        for change in &batch.changes {
            match change {
                BatchChange::Put(object) => {
                    let key = codec::encode_key(&object.key).ok_or_else(too_long)?;
                    write.insert(&self.objects, key, object.data.entry().clone());
                }
                BatchChange::Delete(key) => {
                    write.remove(&self.objects, codec::encode_key(key).ok_or_else(too_long)?);
                }
            }
        }
        write.insert(&self.objects, HEAD_KEY, codec::encode_head(&batch.head).as_slice());
        write.commit()
    }
}

impl Engine for FjallEngine {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, OpenError> {
        let path = self.directory.database();
        let Some(database) = &self.database else {
            return Err(OpenError::damaged(path, "it is closed"));
        };
        for entry in database.objects.iter() {
            let (key, value) = entry.into_inner().map_err(|error| open_error(&path, error))?;
            if *key != *HEAD_KEY {
                each(codec::decode(&key, &value).ok_or_else(|| OpenError::damaged(&path, "an entry is no object"))?);
            }
        }
        Ok(self.head)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        self.check_free_space()?;
        if self.database.is_none() {
            self.database = Some(self.reopen()?);
        }
        let mut written = self.write(batch);
        if matches!(written, Err(fjall::Error::Poisoned)) {
            // A flush or compaction failed before; nothing of this batch was written.
            tracing::warn!(path = %self.directory.path().display(), "failed to flush or compact database");
            self.database = Some(self.reopen()?);
            written = self.write(batch);
        }
        written.map_err(|error| self.write_error(error))?;
        self.head = batch.head;
        self.directory.acknowledge(batch.head.sequence);
        Ok(())
    }

    fn compact(&mut self) -> Result<(), CommitError> {
        if self.head.sequence == 0 {
            return Ok(());
        }
        self.check_free_space()?;
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopen()?,
        };
        let copied = compaction::copy(&database, &self.head, &self.directory, &self.options);
        self.database = Some(database);
        if copied.is_err() {
            // Remains of it use disk space until the next compaction.
            let _ = remove_tree(&self.directory.new_database());
        }
        let compacted = copied.and_then(|()| self.replace_by_copy());
        if self.database.is_none() {
            // No data is lost: the database is unchanged, and the next commit reopens it if this fails.
            self.database = self.reopen().ok();
        }
        compacted
    }
}

/// Creates an empty database atomically: fjall cannot open an interrupted creation.
fn create(directory: &Directory, options: &FjallOptions) -> Result<(), OpenError> {
    let path = directory.new_database();
    remove_tree(&path).map_err(OpenError::io(&path))?;
    drop(open(&path, options)?);
    fs::rename(&path, directory.database())
        .and_then(|()| sync_directory(directory.path()))
        .map_err(OpenError::io(directory.database()))
}

fn open(path: &Path, options: &FjallOptions) -> Result<Open, OpenError> {
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let database = Database::builder(path)
            .worker_threads(1)
            .cache_size(CACHE_BYTES)
            .max_cached_files(Some(CACHED_FILES))
            .max_journaling_size(JOURNAL_BYTES)
            .journal_compression(CompressionType::None)
            .open()?;
        let settings = || KeyspaceCreateOptions::default().max_memtable_size(options.memtable_bytes);
        let objects = database.keyspace(KEYSPACE, settings)?;
        Ok(Open { objects, database })
    }));
    match opened {
        Ok(opened) => opened.map_err(|error| open_error(path, error)),
        // fjall does not validate the names and the metadata in its directory.
        Err(_) => Err(OpenError::damaged(path, "the database engine panicked while it read it")),
    }
}

fn read_head(directory: &Directory, database: &Open) -> Result<Head, OpenError> {
    let path = directory.database();
    let Some(value) = database.objects.get(HEAD_KEY).map_err(|error| open_error(&path, error))? else {
        return Ok(Head::default());
    };
    codec::decode_head(&value).ok_or_else(|| OpenError::damaged(path, "the head cannot be read"))
}

fn open_error(path: &Path, error: fjall::Error) -> OpenError {
    match error {
        fjall::Error::Locked => OpenError::InUse { path: path.to_owned() },
        fjall::Error::Io(source) | fjall::Error::Storage(LsmError::Io(source)) => match source.kind() {
            // A file that is too short to be mapped is invalid input.
            ErrorKind::NotFound
            | ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
            | ErrorKind::InvalidInput
            | ErrorKind::Other => OpenError::damaged(path, source.to_string()),
            _ => OpenError::io(path)(source),
        },
        error => OpenError::damaged(path, error.to_string()),
    }
}

fn io_error(error: fjall::Error) -> io::Error {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => error,
        error => io::Error::other(error),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
