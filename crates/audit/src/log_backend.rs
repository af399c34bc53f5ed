//! Log backend: writes audit events to a file or to standard output, in a thread of its own.
//!
//! Requests wait when the queue is full, so that no event is dropped (as upstream's mode `blocking`, except for queued
//! events when the process is killed). An event that cannot be written is lost, and an error is logged.

use super::event::Event;
use jiff::{SignedDuration, Timestamp};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of queued events.
const QUEUE_LENGTH: usize = 4096;

/// Opens a log file for appending, and creates it if it does not exist.
pub type OpenLog = fn(&Path) -> io::Result<fs::File>;

/// Limits of the rotation of log files; zero is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditRotation {
    /// Maximum size of a file, in megabytes.
    pub max_size: u64,
    /// Maximum number of old files.
    pub max_backup: usize,
    /// Maximum age of old files, in days.
    pub max_age: u32,
}

#[derive(Debug)]
enum Message {
    Event(Box<Event>),
    Flush(oneshot::Sender<()>),
}

/// Sender to the writing thread.
#[derive(Debug, Clone)]
pub(super) struct LogBackend(mpsc::Sender<Message>);

impl LogBackend {
    /// Opens the file, or standard output for `-`.
    pub(super) fn open(path: &Path, rotation: AuditRotation, append: OpenLog) -> io::Result<Self> {
        let mut output = LogWriter::open(path, rotation, append)?;
        let (sender, mut receiver) = mpsc::channel(QUEUE_LENGTH);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || {
            while let Some(message) = receiver.blocking_recv() {
                match message {
                    Message::Event(event) => output.write_event(&event),
                    Message::Flush(done) => drop(done.send(())),
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Queues an event; waits while the queue is full.
    pub(super) async fn send(&self, event: Event) {
        let _ = self.0.send(Message::Event(Box::new(event))).await;
    }

    /// Queues an event without waiting; a task waits while the queue is full.
    pub(super) fn send_in_background(&self, event: Event) {
        if let Err(mpsc::error::TrySendError::Full(message)) = self.0.try_send(Message::Event(Box::new(event)))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let sender = self.0.clone();
            runtime.spawn(async move { sender.send(message).await });
        }
    }

    /// Waits until all queued events are written.
    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.0.send(Message::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

/// Writer of a file or of standard output.
struct LogWriter {
    /// `None` for standard output.
    file: Option<RotatedFile>,
    /// Whether the last write failed.
    failing: bool,
}

/// A log file with rotation.
struct RotatedFile {
    path: PathBuf,
    file: fs::File,
    size: u64,
    rotation: AuditRotation,
    append: OpenLog,
}

impl LogWriter {
    fn open(path: &Path, rotation: AuditRotation, append: OpenLog) -> io::Result<Self> {
        let file = if path == Path::new("-") { None } else { Some(RotatedFile::open(path, rotation, append)?) };
        Ok(Self { file, failing: false })
    }

    fn write_event(&mut self, event: &Event) {
        let written = serde_json::to_vec(event).map_err(io::Error::other).and_then(|mut line| {
            line.push(b'\n');
            match &mut self.file {
                Some(file) => file.write(&line),
                None => io::stdout().lock().write_all(&line),
            }
        });
        match written {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::error!(%error, "failed to write audit event, events are lost");
            }
            Err(_) => {}
        }
    }
}

impl RotatedFile {
    fn open(path: &Path, rotation: AuditRotation, append: OpenLog) -> io::Result<Self> {
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, rotation, append })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let limit = self.rotation.max_size.saturating_mul(1 << 20);
        if limit > 0 && self.size > 0 && self.size + line.len() as u64 > limit {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Renames the file, opens a new one, and removes old files beyond the limits.
    fn rotate(&mut self) -> io::Result<()> {
        let now = Timestamp::now();
        let (stem, extension) = self.name_parts();
        fs::rename(&self.path, self.path.with_file_name(format!("{stem}{}{extension}", now.strftime(TIME_FORMAT))))?;
        *self = Self::open(&self.path.clone(), self.rotation, self.append)?;
        for (i, (path, at)) in self.backups()?.into_iter().enumerate() {
            let age = SignedDuration::from_hours(i64::from(self.rotation.max_age) * 24);
            let is_excess = self.rotation.max_backup > 0 && i >= self.rotation.max_backup;
            if is_excess || (self.rotation.max_age > 0 && now.duration_since(at) > age) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Returns the parts of an old file's name around the time: `audit-` and `.log`.
    fn name_parts(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let extension = self.path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
        (format!("{}-", text(self.path.file_stem())), extension)
    }

    /// Returns old files with their times, newest first.
    fn backups(&self) -> io::Result<Vec<(PathBuf, Timestamp)>> {
        let (stem, extension) = self.name_parts();
        let parent = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut all = Vec::new();
        for entry in fs::read_dir(parent)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let stamp = name.strip_prefix(&stem).and_then(|rest| rest.strip_suffix(&extension));
            let at = stamp.and_then(|s| Timestamp::strptime("%Y-%m-%dT%H-%M-%S%.3f%z", format!("{s}+0000")).ok());
            all.extend(at.map(|at| (entry.path(), at)));
        }
        all.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        Ok(all)
    }
}

/// Time format in the names of old files, as upstream's (lumberjack).
const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S%.3f";

#[cfg(test)]
mod tests {
    use super::*;

    fn append(path: &Path) -> io::Result<fs::File> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::OpenOptions::new().create(true).append(true).open(path)
    }

    #[test]
    fn full_file_is_rotated_and_oldest_backup_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/audit.log");
        let rotation = AuditRotation { max_size: 1, max_backup: 2, max_age: 0 };
        let mut log = RotatedFile::open(&path, rotation, append).unwrap();
        let old = path.with_file_name("audit-2020-01-01T00-00-00.000.log");
        fs::write(&old, "old").unwrap();
        fs::write(path.with_file_name("audit-other.log"), "other").unwrap();
        let line = vec![b'x'; 600 << 10];
        for rotations in 0..3 {
            log.write(&line).unwrap();
            assert_eq!(log.backups().unwrap().len(), [1, 2, 2][rotations]);
            // The name of an old file has milliseconds.
            let before = Timestamp::now().as_millisecond();
            while Timestamp::now().as_millisecond() == before {}
        }
        assert!(!old.exists() && path.with_file_name("audit-other.log").exists());
        assert_eq!(fs::metadata(&path).unwrap().len(), 600 << 10);
    }

    #[test]
    fn backup_above_the_maximum_age_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut log =
            RotatedFile::open(&path, AuditRotation { max_size: 1, max_backup: 0, max_age: 1 }, append).unwrap();
        let old = path.with_file_name("audit-2020-01-01T00-00-00.000.log");
        fs::write(&old, "old").unwrap();
        log.write(&[b'x'; 10]).unwrap();
        log.rotate().unwrap();
        assert!(!old.exists());
        assert_eq!(log.backups().unwrap().len(), 1);
    }
}
