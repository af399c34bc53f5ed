//! Reading fjall's journals without changing them.
//!
//! When fjall (3.1) opens a database, it truncates a journal at the first entry that it cannot decode, and silently
//! drops all later ones: correct for the torn tail of a crash, wrong for a damaged block in the middle of acknowledged
//! batches. So the journals are verified here first, and fjall opens only intact ones.
//!
//! A journal is a sequence of batches, then zeros (it is created with 64 MiB). Numbers are little endian:
//!
//! ```text
//! batch  01 count:u32 seqno:u64  item * count  03 xxh3(items):u64 "FJL" 03
//! item   02 type:u8 compression:u8 keyspace:u64 key_len:u16 len:u32 stored_len:u32 key value
//!      | 04 keyspace:u64
//! ```

use super::codec::{self, HEAD_BYTES, HEAD_KEY};
use nix::{errno::Errno, unistd::Whence};
use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::Xxh3;

const TRAILER: &[u8; 4] = b"FJL\x03";

/// Contents of a journal.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) path: PathBuf,
    /// Sequences of its first and last batch.
    pub(super) batches: Option<(u64, u64)>,
    /// End of the last batch.
    pub(super) end: u64,
    /// Bytes after the last batch, if they are not only zeros.
    pub(super) tail: Option<Tail>,
}

/// Unexpected bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Start of the final zeros.
    pub(super) end: u64,
    /// Whether this is certainly not a torn write: a complete batch follows, or the sequence has a gap.
    pub(super) damage: Option<&'static str>,
}

/// Reads the journals of a database, oldest first, up to the first batch after `until`.
pub(super) fn scan(database: &Path, until: u64) -> io::Result<Vec<Journal>> {
    let mut journals = Vec::new();
    for entry in std::fs::read_dir(database)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let id = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
            let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("{} has no number", path.display()));
            journals.push((id.ok_or_else(invalid)?, path));
        }
    }
    journals.sort();
    journals.into_iter().map(|(_, path)| scan_journal(path, until)).collect()
}

fn scan_journal(path: PathBuf, until: u64) -> io::Result<Journal> {
    let file = File::open(&path)?;
    let length = file.metadata()?.len();
    let mut reader = Reader { inner: BufReader::with_capacity(64 << 10, file), left: length };
    let mut journal = Journal { path, batches: None, end: 0, tail: None };
    let hole = loop {
        let sequence = match read_batch(&mut reader) {
            Ok(sequence) => sequence,
            Err(Stop::Broken) => break None,
            Err(Stop::Io(error)) => return Err(error),
        };
        journal.batches = match (journal.batches, sequence) {
            (_, Some(sequence)) if sequence > until => break None,
            (Some((_, last)), Some(sequence)) if sequence != last + 1 => {
                break Some("a batch is missing");
            }
            (Some((first, _)), Some(sequence)) => Some((first, sequence)),
            (None, Some(sequence)) => Some((sequence, sequence)),
            (batches, None) => batches,
        };
        journal.end = length - reader.left;
    };
    let mut file = reader.inner.into_inner();
    if let Some(end) = last_nonzero(&mut file, journal.end)? {
        let damage = match hole {
            Some(hole) => Some(hole),
            None => batch_follows(&mut file, journal.end, end)?
                .then_some("a batch that cannot be read is followed by others"),
        };
        journal.tail = Some(Tail { end, damage });
    }
    Ok(journal)
}

enum Stop {
    /// No complete batch begins here.
    Broken,
    Io(io::Error),
}

struct Reader<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Reader<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<(), Stop> {
        self.left = self.left.checked_sub(out.len() as u64).ok_or(Stop::Broken)?;
        self.inner.read_exact(out).map_err(Stop::Io)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut out = [0; N];
        self.read(&mut out)?;
        Ok(out)
    }

    /// Appends to `out` after a check of the remaining size: a corrupt length must not allocate a huge buffer.
    fn append(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        if len as u64 > self.left {
            return Err(Stop::Broken);
        }
        let start = out.len();
        out.resize(start + len, 0);
        self.read(&mut out[start..])
    }
}

/// Reads one batch; returns the sequence of its head, if it has one.
fn read_batch(reader: &mut Reader<impl Read>) -> Result<Option<u64>, Stop> {
    let [1] = reader.array()? else {
        return Err(Stop::Broken);
    };
    let count = u32::from_le_bytes(reader.array()?);
    let _seqno: [u8; 8] = reader.array()?;
    let mut hasher = Xxh3::new();
    let mut item = Vec::new();
    let mut sequence = None;
    for _ in 0..count {
        item.clear();
        read_item(reader, &mut item)?;
        hasher.update(&item);
        let payload = item.get(ITEM_HEADER..).unwrap_or_default();
        if let Some(head) = payload.strip_prefix(HEAD_KEY).filter(|head| head.len() == HEAD_BYTES) {
            sequence = codec::decode_head(head).map(|head| head.sequence);
        }
    }
    let [3] = reader.array()? else {
        return Err(Stop::Broken);
    };
    let checksum = u64::from_le_bytes(reader.array()?);
    let is_complete = checksum == hasher.digest() && reader.array::<4>()? == *TRAILER;
    if is_complete { Ok(sequence) } else { Err(Stop::Broken) }
}

/// Size of an item's header with its tag, in bytes.
const ITEM_HEADER: usize = 21;

fn read_item(reader: &mut Reader<impl Read>, item: &mut Vec<u8>) -> Result<(), Stop> {
    let [tag] = reader.array()?;
    item.push(tag);
    match tag {
        2 => {
            // Type, compression and keyspace are not needed.
            reader.append(10, item)?;
            let key: [u8; 2] = reader.array()?;
            let lengths: [u8; 8] = reader.array()?;
            item.extend_from_slice(&key);
            item.extend_from_slice(&lengths);
            let [_, _, _, _, a, b, c, d] = lengths;
            let stored = u32::from_le_bytes([a, b, c, d]) as usize;
            reader.append(usize::from(u16::from_le_bytes(key)) + stored, item)
        }
        4 => reader.append(8, item),
        _ => Err(Stop::Broken),
    }
}

/// Returns the offset after the last non-zero byte, if there is one from `from` on.
fn last_nonzero(file: &mut File, from: u64) -> io::Result<Option<u64>> {
    const CHUNK: usize = 64 << 10;
    let zeros = vec![0; CHUNK];
    let mut chunk = vec![0; CHUNK];
    let mut offset = from;
    let mut last = None;
    loop {
        // A new journal is mostly a hole. Without support for holes, zeros are read.
        offset = match nix::unistd::lseek(&*file, i64::try_from(offset).unwrap_or(i64::MAX), Whence::SeekData) {
            Ok(data) => u64::try_from(data).unwrap_or(offset),
            Err(Errno::ENXIO) => return Ok(last),
            Err(_) => file.seek(SeekFrom::Start(offset))?,
        };
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok(last);
        }
        // Comparing whole chunks is a hundred times faster than single bytes.
        if chunk[..count] != zeros[..count] {
            last = chunk[..count].iter().rposition(|byte| *byte != 0).map(|index| offset + index as u64 + 1).or(last);
        }
        offset += count as u64;
    }
}

/// Returns whether a complete batch begins after a trailer between two offsets.
fn batch_follows(file: &mut File, from: u64, to: u64) -> io::Result<bool> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(to - from).read_to_end(&mut bytes)?;
    let starts = bytes.windows(TRAILER.len()).enumerate().filter(|(_, window)| *window == TRAILER);
    Ok(starts.map(|(index, _)| &bytes[index + TRAILER.len()..]).any(|rest| {
        let mut reader = Reader { inner: rest, left: rest.len() as u64 };
        read_batch(&mut reader).is_ok()
    }))
}
