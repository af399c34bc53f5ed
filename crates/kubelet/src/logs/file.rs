//! A log that is read in parts as it grows, over its rotations.

use crate::untrusted_file::{self, BLOCK, ReadAt};
use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// While a log is rotated there is none for a moment.
const ROTATION: Duration = Duration::from_millis(20);
const TRIES: u32 = 25;

/// The newest file of a log, and how far it was read.
pub(crate) struct LogFile {
    path: PathBuf,
    file: Arc<File>,
    read: u64,
    /// Where reading ends, if the log is not followed.
    end: Option<u64>,
}

impl LogFile {
    /// Opens a log at its beginning, or where its last `tail` lines begin. Unless it is followed, it ends where it ends now.
    pub(crate) async fn open(path: PathBuf, tail: Option<usize>, follow: bool) -> io::Result<Self> {
        for tried in 1.. {
            let opened = path.clone();
            match off_workers(move || open(&opened, tail)).await {
                Err(e) if e.kind() == io::ErrorKind::NotFound && tried < TRIES => tokio::time::sleep(ROTATION).await,
                Err(error) => return Err(error),
                Ok((file, read, length)) => {
                    return Ok(Self { path, file: Arc::new(file), read, end: (!follow).then_some(length) });
                }
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// The next whole lines, at most [`BLOCK`] bytes of them; none at the end. After a rotation a followed log goes on in the
    /// new file once the old one is at its end.
    pub(crate) async fn lines(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.read));
            let limit = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
            if limit == 0 {
                return Ok(Vec::new());
            }
            let (path, file, read) = (self.path.clone(), Arc::clone(&self.file), self.read);
            let (rotated, mut raw) = off_workers(move || {
                // Checked before the read: a runtime that has begun the new file writes no more to the old one.
                let rotated = is_rotated(&path, &file)?;
                Ok((rotated, untrusted_file::read_at(&*file, read, limit)?))
            })
            .await?;
            raw.truncate(whole_lines(&raw, rotated));
            self.read += raw.len() as u64;
            if !raw.is_empty() || !rotated || self.end.is_some() {
                return Ok(raw);
            }
            let path = self.path.clone();
            self.file = Arc::new(off_workers(move || untrusted_file::open(&path)).await?);
            self.read = 0;
        }
    }
}

/// Opens a log, and returns where its last `tail` lines begin, and its length.
fn open(path: &Path, tail: Option<usize>) -> io::Result<(File, u64, u64)> {
    let file = untrusted_file::open(path)?;
    let length = file.metadata()?.len();
    let start = tail.map_or(Ok(0), |lines| tail_start(&file, length, lines))?;
    Ok((file, start, length))
}

/// How much of a part of a log is whole lines. A line that is still being written waits for its end, unless the file is
/// complete; a line that is longer than a part is passed on in pieces.
fn whole_lines(raw: &[u8], is_complete: bool) -> usize {
    let is_last = raw.len() < BLOCK;
    match raw.iter().rposition(|b| *b == b'\n') {
        _ if is_complete && is_last => raw.len(),
        Some(end) => end + 1,
        None if is_last => 0,
        None => raw.len(),
    }
}

/// Where the last whole lines of a log begin, so many of them. The log is read backwards, block by block, until they are
/// found (upstream's `FindTailLineStartIndex`).
fn tail_start(file: &impl ReadAt, length: u64, lines: usize) -> io::Result<u64> {
    let mut found = 0;
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let block = untrusted_file::read_at(file, start, usize::try_from(end - start).unwrap_or(BLOCK))?;
        for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            // The end of the last whole line is the first one found.
            if found == lines {
                return Ok(start + at as u64 + 1);
            }
            found += 1;
        }
        end = start;
    }
    Ok(0)
}

fn is_rotated(path: &Path, file: &File) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(newest) => Ok((newest.dev(), newest.ino()) != (ours.dev(), ours.ino())),
        // Set aside, and the new one is not there yet; or removed with its container.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Runs work on the disk on a thread that may block.
async fn off_workers<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, fs, io::Write};

    async fn opened(path: &Path, tail: Option<usize>, follow: bool) -> LogFile {
        LogFile::open(path.to_owned(), tail, follow).await.unwrap()
    }

    #[tokio::test]
    async fn a_reader_follows_a_log_over_its_rotation_and_misses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("0.log"), dir.path().join("0.log.1"));
        let append = |path: &PathBuf, text: &str| {
            fs::OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        append(&path, "one\ntw");
        let mut log = opened(&path, None, true).await;
        assert_eq!(log.lines().await.unwrap(), b"one\n");
        assert_eq!(log.lines().await.unwrap(), b"");
        fs::rename(&path, &aside).unwrap();
        append(&aside, "o\nthree\n");
        assert_eq!(log.lines().await.unwrap(), b"two\nthree\n", "the runtime writes on until it is told");
        append(&aside, "four\n");
        append(&path, "five\n");
        assert_eq!(log.lines().await.unwrap(), b"four\n");
        assert_eq!(log.lines().await.unwrap(), b"five\n");
        append(&path, "six\n");
        assert_eq!(log.lines().await.unwrap(), b"six\n");
        fs::remove_file(&path).unwrap();
        assert_eq!(log.lines().await.unwrap(), b"");
    }

    #[tokio::test]
    async fn log_is_read_in_parts_to_the_end_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let text: String = (0..40_000).map(|n| format!("line {n}\n")).collect();
        let long = "x".repeat(3 * BLOCK);
        fs::write(&path, format!("{text}{long}\nlast\nunfinished")).unwrap();
        let mut log = opened(&path, None, false).await;
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"later\n").unwrap();
        let (mut all, mut parts) = (Vec::new(), 0);
        loop {
            let part = log.lines().await.unwrap();
            assert!(part.len() <= BLOCK);
            if part.is_empty() {
                break;
            }
            parts += 1;
            all.extend_from_slice(&part);
        }
        assert_eq!(String::from_utf8(all).unwrap(), format!("{text}{long}\nlast\n"));
        assert!(parts > 5, "{parts}");
    }

    #[tokio::test]
    async fn link_or_device_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(LogFile::open(path, Some(1), false).await.is_err());
    }

    /// Text that counts how much of it is read.
    struct Counted {
        text: Vec<u8>,
        read: Cell<usize>,
    }

    impl ReadAt for Counted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let from = usize::try_from(offset).unwrap().min(self.text.len());
            let length = buffer.len().min(self.text.len() - from);
            buffer[..length].copy_from_slice(&self.text[from..from + length]);
            self.read.set(self.read.get() + length);
            Ok(length)
        }
    }

    fn start_of(text: &[u8], lines: usize) -> (u64, usize) {
        let counted = Counted { text: text.to_vec(), read: Cell::new(0) };
        let start = tail_start(&counted, text.len() as u64, lines).unwrap();
        (start, counted.read.get())
    }

    #[test]
    fn tail_begins_where_splitting_the_whole_text_says() {
        let long = format!("{}\n{}\n\nx\n", "a".repeat(BLOCK), "b".repeat(BLOCK - 2));
        for text in ["", "\n", "one", "one\n", "one\ntwo", "one\n\ntwo\n", "\n\n\n", &long, &long.repeat(3)] {
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            let all: Vec<&str> = text[..whole].split_inclusive('\n').collect();
            for lines in 0..8 {
                let skipped: usize = all[..all.len().saturating_sub(lines)].iter().map(|line| line.len()).sum();
                let (start, _) = start_of(text.as_bytes(), lines);
                assert_eq!(start, skipped as u64, "{lines} of {:?}", &text[..text.len().min(20)]);
            }
        }
    }

    #[test]
    fn last_line_of_a_long_log_costs_one_block() {
        let text = "a line of a log\n".repeat(1 << 20);
        let (start, read) = start_of(text.as_bytes(), 1);
        assert_eq!((start, read), ((text.len() - 16) as u64, BLOCK));
    }
}
