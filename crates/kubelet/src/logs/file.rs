//! Incremental reader of a container log, across rotations.

use crate::untrusted_file::{self, BLOCK, ReadAt};
use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Retry interval while the log is missing during a rotation.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
const MAX_ATTEMPTS: u32 = 25;

/// Newest file of a log, and the read position.
pub(crate) struct LogFile {
    path: PathBuf,
    file: Arc<File>,
    read: u64,
    /// End of the read, if the log is not followed.
    end: Option<u64>,
}

impl LogFile {
    /// Opens a log at its start, or at its last `tail` lines. Without `follow` it is read up to its current end.
    pub(crate) async fn open(path: PathBuf, tail: Option<usize>, follow: bool) -> io::Result<Self> {
        for attempt in 1.. {
            let opened = path.clone();
            match run_blocking(move || open(&opened, tail)).await {
                Err(e) if e.kind() == io::ErrorKind::NotFound && attempt < MAX_ATTEMPTS => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error),
                Ok((file, read, length)) => {
                    return Ok(Self { path, file: Arc::new(file), read, end: (!follow).then_some(length) });
                }
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Reads the next complete lines, at most [`BLOCK`] bytes; empty at the end. After a rotation a followed log continues
    /// with the new file when the old one is read.
    pub(crate) async fn next_lines(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.read));
            let limit = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
            if limit == 0 {
                return Ok(Vec::new());
            }
            let (path, file, read) = (self.path.clone(), Arc::clone(&self.file), self.read);
            let (rotated, mut raw) = run_blocking(move || {
                // Checked before the read: after the runtime has opened the new file, it does not write to the old one.
                let rotated = is_rotated(&path, &file)?;
                Ok((rotated, untrusted_file::read_at(&*file, read, limit)?))
            })
            .await?;
            raw.truncate(complete_lines_length(&raw, rotated));
            self.read += raw.len() as u64;
            if !raw.is_empty() || !rotated || self.end.is_some() {
                return Ok(raw);
            }
            let path = self.path.clone();
            self.file = Arc::new(run_blocking(move || untrusted_file::open(&path)).await?);
            self.read = 0;
        }
    }
}

/// Opens a log. Returns the file, the offset of its last `tail` lines, and its length.
fn open(path: &Path, tail: Option<usize>) -> io::Result<(File, u64, u64)> {
    let file = untrusted_file::open(path)?;
    let length = file.metadata()?.len();
    let start = tail.map_or(Ok(0), |lines| tail_start(&file, length, lines))?;
    Ok((file, start, length))
}

/// Returns the length of the complete lines in a block. An incomplete line is held back, unless the file is complete; a line
/// that is longer than a block is passed on in pieces.
fn complete_lines_length(raw: &[u8], is_complete: bool) -> usize {
    let is_last = raw.len() < BLOCK;
    match raw.iter().rposition(|b| *b == b'\n') {
        _ if is_complete && is_last => raw.len(),
        Some(end) => end + 1,
        None if is_last => 0,
        None => raw.len(),
    }
}

/// Returns the offset of the last `lines` complete lines. The log is read backwards block by block (upstream's
/// `FindTailLineStartIndex`).
fn tail_start(file: &impl ReadAt, length: u64, lines: usize) -> io::Result<u64> {
    let mut found = 0;
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let block = untrusted_file::read_at(file, start, usize::try_from(end - start).unwrap_or(BLOCK))?;
        for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            // The first newline found ends the last complete line.
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
    let metadata = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(newest) => Ok((newest.dev(), newest.ino()) != (metadata.dev(), metadata.ino())),
        // Renamed, and not recreated yet; or removed with its container.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Runs file I/O on the blocking thread pool.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
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
    async fn followed_log_continues_across_rotation_without_loss() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("0.log"), dir.path().join("0.log.1"));
        let append = |path: &PathBuf, text: &str| {
            fs::OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        append(&path, "one\ntw");
        let mut log = opened(&path, None, true).await;
        assert_eq!(log.next_lines().await.unwrap(), b"one\n");
        assert_eq!(log.next_lines().await.unwrap(), b"");
        fs::rename(&path, &aside).unwrap();
        append(&aside, "o\nthree\n");
        assert_eq!(
            log.next_lines().await.unwrap(),
            b"two\nthree\n",
            "the runtime writes to the old file until it reopens the log"
        );
        append(&aside, "four\n");
        append(&path, "five\n");
        assert_eq!(log.next_lines().await.unwrap(), b"four\n");
        assert_eq!(log.next_lines().await.unwrap(), b"five\n");
        append(&path, "six\n");
        assert_eq!(log.next_lines().await.unwrap(), b"six\n");
        fs::remove_file(&path).unwrap();
        assert_eq!(log.next_lines().await.unwrap(), b"");
    }

    #[tokio::test]
    async fn log_is_read_in_blocks_to_its_initial_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let text: String = (0..40_000).map(|n| format!("line {n}\n")).collect();
        let long = "x".repeat(3 * BLOCK);
        fs::write(&path, format!("{text}{long}\nlast\nunfinished")).unwrap();
        let mut log = opened(&path, None, false).await;
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"later\n").unwrap();
        let (mut all, mut parts) = (Vec::new(), 0);
        loop {
            let part = log.next_lines().await.unwrap();
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
    async fn symlink_to_a_device_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(LogFile::open(path, Some(1), false).await.is_err());
    }

    /// Reader that counts the bytes read.
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
    fn tail_start_matches_splitting_the_whole_text() {
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
    fn last_line_of_a_long_log_needs_one_block() {
        let text = "a line of a log\n".repeat(1 << 20);
        let (start, read) = start_of(text.as_bytes(), 1);
        assert_eq!((start, read), ((text.len() - 16) as u64, BLOCK));
    }
}
