//! The directory of a store: its format, its lock, and the record of the acknowledged head.
//!
//! ```text
//! format         "store-format 1"
//! lock           locked while the store is open
//! acknowledged   the sequence of the last acknowledged batch, with a checksum; written after each commit, not synced
//! database/      fjall's own
//! database.new/  a database that was being created, or that a compaction has replaced, when the machine stopped
//! torn/          copies of truncated journal tails
//! ```
//!
//! `acknowledged` costs a microsecond and no sync: after a crash of the process it is exact, after a loss of power it may
//! be outdated, and it is never ahead. So the batch that it names must exist.

use crate::OpenError;
use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::xxh3_64;

/// Newest format that is read; the one that is written.
const FORMAT: u32 = 1;
const FORMAT_WORD: &str = "store-format";

/// Directory that is locked by this process.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
    acknowledged: File,
}

impl Directory {
    /// Creates the directory if needed, checks its format, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let format = read_format(path)?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path).map_err(OpenError::io(path))?;
        let lock = open_or_create(&path.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::InUse { path: path.to_owned() },
            TryLockError::Error(error) => OpenError::io(path.join("lock"))(error),
        })?;
        if format.is_none() && path.join("database").exists() {
            return Err(OpenError::damaged(path.join("format"), "it is missing"));
        }
        if format.is_none() {
            let temporary = path.join("format.new");
            fs::write(&temporary, format!("{FORMAT_WORD} {FORMAT}\n"))
                .and_then(|()| File::open(&temporary)?.sync_all())
                .and_then(|()| fs::rename(&temporary, path.join("format")))
                .and_then(|()| sync_directory(path))
                .and_then(|()| sync_directory(&path.join("..")))
                .map_err(OpenError::io(path.join("format")))?;
        }
        let acknowledged = open_or_create(&path.join("acknowledged"))?;
        Ok(Self { path: path.to_owned(), _lock: lock, acknowledged })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join("database")
    }

    /// Returns the path of a database in creation, or replaced by a compaction.
    pub(super) fn new_database(&self) -> PathBuf {
        self.path.join("database.new")
    }

    /// Returns the path of copies of torn journal tails.
    pub(super) fn torn(&self) -> PathBuf {
        self.path.join("torn")
    }

    /// Returns the sequence of the last batch that is known to be acknowledged; 0 if there is none.
    pub(super) fn acknowledged(&self) -> Result<u64, OpenError> {
        let mut note = Vec::new();
        (&self.acknowledged)
            .seek(SeekFrom::Start(0))
            .and_then(|_| (&self.acknowledged).take(17).read_to_end(&mut note))
            .map_err(OpenError::io(self.path.join("acknowledged")))?;
        let sequence = note.first_chunk::<8>().copied().unwrap_or_default();
        if note == acknowledged_note(sequence) {
            return Ok(u64::from_le_bytes(sequence));
        }
        if note.iter().any(|byte| *byte != 0) {
            // Only a power loss corrupts it, after which an older value would be no help either.
            tracing::warn!(path = %self.path.display(), "failed to read acknowledged sequence, ignoring it");
        }
        Ok(0)
    }

    /// Records a batch before it is acknowledged.
    pub(super) fn acknowledge(&self, sequence: u64) {
        let note = acknowledged_note(sequence.to_le_bytes());
        if let Err(error) = self.acknowledged.write_all_at(&note, 0) {
            // The batch is durable; only its later loss would not be detected.
            tracing::warn!(path = %self.path.display(), %error, "failed to record acknowledged sequence");
        }
    }

    /// Copies bytes that are about to be cut from a journal.
    pub(super) fn keep_torn(&self, journal: &Path, from: u64, to: u64) -> io::Result<PathBuf> {
        let folder = self.torn();
        fs::create_dir_all(&folder)?;
        let name = journal.file_name().unwrap_or_default().to_string_lossy();
        let copy = folder.join(format!("{name}.{from}"));
        let mut source = File::open(journal)?;
        source.seek(SeekFrom::Start(from))?;
        let mut target = File::create(&copy)?;
        io::copy(&mut source.take(to - from), &mut target)?;
        target.sync_all()?;
        Ok(copy)
    }
}

/// Returns eight bytes of sequence and eight of checksum.
fn acknowledged_note(sequence: [u8; 8]) -> [u8; 16] {
    let mut note = [0; 16];
    note[..8].copy_from_slice(&sequence);
    note[8..].copy_from_slice(&xxh3_64(&sequence).to_le_bytes());
    note
}

fn open_or_create(path: &Path) -> Result<File, OpenError> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(OpenError::io(path))
}

/// Truncates a file durably.
pub(super) fn cut(path: &Path, length: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(length)?;
    file.sync_all()
}

/// Removes a directory tree, if it exists.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Reads the format of the store in a directory; `None` if there is no store.
fn read_format(path: &Path) -> Result<Option<u32>, OpenError> {
    let file = path.join("format");
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io(file)(error)),
    };
    let found = text.trim().strip_prefix(FORMAT_WORD).and_then(|number| number.trim().parse().ok());
    match found {
        Some(found @ 1..=FORMAT) => Ok(Some(found)),
        Some(found) => Err(OpenError::UnknownFormat { path: path.to_owned(), found, supported: FORMAT }),
        None => {
            Err(OpenError::damaged(file, format!("unknown content {:?}", text.chars().take(80).collect::<String>())))
        }
    }
}
