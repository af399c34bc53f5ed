//! The embedded engine: [fjall](https://docs.rs/fjall), a log-structured merge tree.
//!
//! # What is certain after a crash
//!
//! A batch is one batch of fjall's journal, with the new [`Head`] in it, and `fdatasync`ed before it is acknowledged.
//! On opening, four things are looked at before fjall may touch its files, and one after:
//!
//! - fjall's files are all there (`layout.rs`);
//! - every batch in the journals has its checksum, and their sequences have no hole (`journal.rs`, `recovery.rs`);
//! - only the newest journal may end in a batch that is not whole, and nothing may follow it: that is the torn tail of
//!   a crash, which nobody was told of. It is copied to `torn/`, cut, and reported in the log;
//! - the last whole batch is not older than the last one that is known to be acknowledged (`directory.rs`);
//! - what was loaded has the number of objects and the digest that the head says (the store checks that).
//!
//! Whatever else is found is [`OpenError::Damaged`], and the files stay as they are.
//! One thing cannot be known: after a loss of power, a last batch that was acknowledged and then garbled on the disk
//! looks like one that was torn.
//!
//! # After a failed commit
//!
//! fjall refuses everything after an I/O error. The engine then closes the database, cuts from the journal what was
//! not acknowledged (fjall flushes the rest of a failed batch when it closes, so it may have become whole), and opens
//! it again before the next commit. To make that rare, no batch is begun when the disk has less room than
//! [`FjallOptions::reserve_bytes`]: fjall's own flushes and compactions need some, and fail for good without it.
//! (fjall holds a commit back, without a limit, while four memtables wait to be flushed. With one worker thread, which
//! also seals the memtables, that many do not come together, whether the worker lives or has failed.)
//!
//! # What replaced values leave
//!
//! Values that were replaced stay in journals and tables until the engine is compacted (`compaction.rs`).

mod codec;
mod compaction;
mod directory;
mod journal;
mod layout;
mod recovery;

use std::fs;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode};

use self::codec::HEAD_KEY;
use self::directory::{Directory, remove_tree, sync_directory};
use super::{Batch, BatchChange, CommitError, Engine, Head};
use crate::{OpenError, Record};

/// How much the engine may use.
#[derive(Clone, Debug)]
pub struct FjallOptions {
    /// Room on the disk below which writes are refused as [`CommitError::Full`].
    pub reserve_bytes: u64,
    /// Bytes of writes that fjall holds in memory before it writes a table.
    pub memtable_bytes: u64,
    /// How long a database that could not be opened again after a failure is left alone.
    pub reopen_backoff: Duration,
}

impl Default for FjallOptions {
    fn default() -> Self {
        Self { reserve_bytes: 32 << 20, memtable_bytes: 4 << 20, reopen_backoff: Duration::from_millis(250) }
    }
}

/// Blocks are read once, when the store is opened: a cache is of little use.
const CACHE_BYTES: u64 = 1 << 20;
const CACHED_FILES: usize = 32;
/// The least that fjall takes.
const JOURNAL_BYTES: u64 = 64 << 20;
const KEYSPACE: &str = "objects";

/// Keeps objects in a directory of this machine.
pub struct FjallEngine {
    directory: Directory,
    options: FjallOptions,
    /// `None` after a failure.
    database: Option<Open>,
    /// What is acknowledged.
    head: Head,
    /// When a database that could not be opened again may be tried again.
    reopen_after: Option<Instant>,
}

struct Open {
    objects: Keyspace,
    database: Database,
}

impl FjallEngine {
    /// Opens the store in a directory, or makes one there.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; a store that was there is unchanged.
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
        // A compaction that a crash cut off left it.
        remove_tree(&directory.new_database()).map_err(OpenError::io(directory.new_database()))?;
        Ok(Self { directory, options, database: Some(database), head, reopen_after: None })
    }

    /// Opens the database again after a failure, at exactly what was acknowledged.
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

    /// Puts the copy of the database into its place, or stays with the database as it was.
    fn replace_by_copy(&mut self) -> Result<(), CommitError> {
        // It is closed, for its files change their place.
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

    /// Refuses to begin what the disk may have no room to finish.
    fn check_room(&self) -> Result<(), CommitError> {
        let room =
            nix::sys::statvfs::statvfs(self.directory.path()).map_err(|error| CommitError::Write(error.into()))?;
        let free = room.blocks_available().saturating_mul(room.fragment_size());
        if free < self.options.reserve_bytes { Err(CommitError::Full) } else { Ok(()) }
    }

    /// Writes a batch. After a failure, the database is closed, and nothing of the batch is left in it.
    fn write(&mut self, batch: &Batch) -> Result<(), fjall::Error> {
        let Some(database) = &self.database else {
            return Err(fjall::Error::Poisoned);
        };
        let written = database.write(batch);
        if written.is_err() {
            self.database = None;
            // Tried again before the next commit; at once, so that it does not turn up if the process ends here.
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
        self.check_room()?;
        if self.database.is_none() {
            self.database = Some(self.reopen()?);
        }
        let mut written = self.write(batch);
        if matches!(written, Err(fjall::Error::Poisoned)) {
            // A flush or compaction had failed before; nothing of this batch was written.
            tracing::warn!(path = %self.directory.path().display(), "failed to flush or compact database");
            self.database = Some(self.reopen()?);
            written = self.write(batch);
        }
        written.map_err(|error| match io_error(error) {
            error if is_full(&error) => CommitError::Full,
            error => CommitError::Write(error),
        })?;
        self.head = batch.head;
        self.directory.acknowledge(batch.head.sequence);
        Ok(())
    }

    fn compact(&mut self) -> Result<(), CommitError> {
        if self.head.sequence == 0 {
            return Ok(());
        }
        self.check_room()?;
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopen()?,
        };
        let copied = compaction::copy(&database, &self.head, &self.directory, &self.options);
        self.database = Some(database);
        if copied.is_err() {
            // What is left of it takes room until the next copy.
            let _ = remove_tree(&self.directory.new_database());
        }
        let compacted = copied.and_then(|()| self.replace_by_copy());
        if self.database.is_none() {
            // Nothing is lost: it is as it was, and the next commit opens it, if this does not.
            self.database = self.reopen().ok();
        }
        compacted
    }
}

/// Makes an empty database, at once or not at all: fjall cannot open what a crash left of its own creation.
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
        // fjall trusts the names and the metadata in its directory.
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
