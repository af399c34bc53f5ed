//! A log that is read as it grows, over its rotations.

use std::{
    io::{self, SeekFrom},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::Duration,
};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
};

/// While a log is rotated there is none for a moment.
const ROTATION: Duration = Duration::from_millis(20);
const TRIES: u32 = 25;

/// The newest file of a log, and how far it was read.
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    read: u64,
}

impl LogFile {
    /// Opens a log at its beginning.
    pub(crate) async fn open(path: PathBuf) -> io::Result<Self> {
        for _ in 1..TRIES {
            match File::open(&path).await {
                Err(e) if e.kind() == io::ErrorKind::NotFound => tokio::time::sleep(ROTATION).await,
                opened => return opened.map(|file| Self { path, file, read: 0 }),
            }
        }
        let file = File::open(&path).await?;
        Ok(Self { path, file, read: 0 })
    }

    /// The whole lines that came since the last call. After a rotation it goes on in the new file once the old one is
    /// at its end.
    pub(crate) async fn lines(&mut self) -> io::Result<Vec<u8>> {
        loop {
            // Asked before the read: a runtime that has begun the new file writes no more to the old one.
            let rotated = self.is_rotated().await?;
            let mut raw = Vec::new();
            self.file.seek(SeekFrom::Start(self.read)).await?;
            self.file.read_to_end(&mut raw).await?;
            // A line that is still being written waits for its end.
            let whole = if rotated { raw.len() } else { raw.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1) };
            raw.truncate(whole);
            self.read += whole as u64;
            if !raw.is_empty() || !rotated {
                return Ok(raw);
            }
            self.file = File::open(&self.path).await?;
            self.read = 0;
        }
    }

    async fn is_rotated(&self) -> io::Result<bool> {
        let ours = self.file.metadata().await?;
        match tokio::fs::metadata(&self.path).await {
            Ok(newest) => Ok((newest.dev(), newest.ino()) != (ours.dev(), ours.ino())),
            // Set aside, and the new one is not there yet; or removed with its container.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    #[tokio::test]
    async fn a_reader_follows_a_log_over_its_rotation_and_misses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("0.log"), dir.path().join("0.log.1"));
        let append = |path: &PathBuf, text: &str| {
            fs::OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        append(&path, "one\ntw");
        let mut log = LogFile::open(path.clone()).await.unwrap();
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
}
