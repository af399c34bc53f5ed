//! Logs of containers in the CRI's format: `TIME STREAM TAG TEXT`, with the tag `P` for a part of a line and `F` for
//! its end.
//!
//! As containerd's `redirectLogs`: a line over 16 KiB has several entries, a carriage return before the end of a line
//! is dropped, and text without an end of line at the end of the output is a part.

use nix::fcntl::OFlag;
use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// Maximum length of the text of an entry in bytes (containerd's `max_container_log_line_size`).
const MAX_LINE: usize = 16 << 10;
/// Entries are written when they have this size, and at the end of each chunk of output.
const MAX_BATCH: usize = 64 << 10;

/// Standard stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Stdout, and the output of a terminal.
    Stdout,
    /// Stderr.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Stdout => b"stdout",
            Self::Stderr => b"stderr",
        }
    }
}

/// Splits the output of one stream into entries.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    stream: Stream,
    /// Text of the current line since its last entry.
    pending: Vec<u8>,
}

impl LineSplitter {
    pub(crate) const fn new(stream: Stream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Writes the entries that a chunk of output completes. `batch` is a buffer.
    pub(crate) fn push(&mut self, mut data: &[u8], log: &mut LogFile, batch: &mut Vec<u8>) {
        batch.clear();
        while !data.is_empty() {
            let end = data.iter().position(|byte| *byte == b'\n');
            let (line, rest) = data.split_at(end.unwrap_or(data.len()));
            data = rest.get(1..).unwrap_or_default();
            self.push_text(line, end.is_some(), log, batch);
        }
        log.write(batch);
    }

    fn push_text(&mut self, mut text: &[u8], is_end: bool, log: &mut LogFile, batch: &mut Vec<u8>) {
        if is_end {
            text = match text.strip_suffix(b"\r") {
                Some(text) => text,
                None => {
                    if text.is_empty() && self.pending.last() == Some(&b'\r') {
                        self.pending.pop();
                    }
                    text
                }
            };
        }
        while self.pending.len() + text.len() > MAX_LINE {
            let (part, rest) = text.split_at((MAX_LINE - self.pending.len()).min(text.len()));
            text = rest;
            self.append_entry(b'P', part, log, batch);
        }
        if is_end {
            self.append_entry(b'F', text, log, batch);
            // Memory of a long line is not kept.
            self.pending = Vec::new();
        } else {
            self.pending.extend_from_slice(text);
        }
    }

    /// Writes the text of an unfinished line, at the end of the output.
    pub(crate) fn finish(&mut self, log: &mut LogFile, batch: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            batch.clear();
            self.append_entry(b'P', b"", log, batch);
            log.write(batch);
        }
    }

    fn append_entry(&mut self, tag: u8, text: &[u8], log: &mut LogFile, batch: &mut Vec<u8>) {
        log.clock.append_now(batch);
        batch.push(b' ');
        batch.extend_from_slice(self.stream.name());
        batch.extend_from_slice(&[b' ', tag, b' ']);
        batch.append(&mut self.pending);
        batch.extend_from_slice(text);
        batch.push(b'\n');
        if batch.len() >= MAX_BATCH {
            log.write(batch);
            batch.clear();
        }
    }
}

/// A log file, which only the keeper writes.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: Option<PathBuf>,
    file: Option<File>,
    clock: Clock,
    lost: u64,
}

impl LogFile {
    /// Opens a log; without a path, everything is discarded.
    pub(crate) fn open(path: Option<PathBuf>) -> io::Result<Self> {
        let mut log = Self { path, file: None, clock: Clock::default(), lost: 0 };
        log.reopen()?;
        Ok(log)
    }

    /// Opens the file again, after it was renamed. Entries are never split between the files. After an error, the old
    /// file is written.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        // A container with a mount of the log directory could create links and pipes there.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o640).custom_flags(flags.bits()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the log is not a regular file"));
        }
        self.file = Some(file);
        Ok(())
    }

    /// Returns the number of bytes that could not be written.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Appends entries. They are lost if the disk is full: a container does not stop because of its log.
    fn write(&mut self, entries: &[u8]) {
        let Some(file) = &mut self.file else { return };
        let mut rest = entries;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => break,
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if rest.is_empty() {
            return;
        }
        self.lost = self.lost.saturating_add(entries.len() as u64);
        // Without the torn entry, the next one begins a line.
        let written = (entries.len() - rest.len()) as u64;
        if written > 0
            && let Ok(metadata) = file.metadata()
        {
            let _ = file.set_len(metadata.len().saturating_sub(written));
        }
    }
}

/// Formats the current time, as `2016-10-06T00:17:09.669794202Z`.
#[derive(Debug)]
struct Clock {
    second: Option<u64>,
    text: [u8; 30],
}

impl Default for Clock {
    fn default() -> Self {
        Self { second: None, text: *b"0000-00-00T00:00:00.000000000Z" }
    }
}

impl Clock {
    fn append_now(&mut self, out: &mut Vec<u8>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != Some(now.as_secs()) {
            self.second = Some(now.as_secs());
            self.set_second(now.as_secs());
        }
        put(&mut self.text, 20..29, u64::from(now.subsec_nanos()));
        out.extend_from_slice(&self.text);
    }

    fn set_second(&mut self, second: u64) {
        let (days, of_day) = (second / 86_400, second % 86_400);
        let (year, month, day) = date(days);
        put(&mut self.text, 0..4, year);
        put(&mut self.text, 5..7, month);
        put(&mut self.text, 8..10, day);
        put(&mut self.text, 11..13, of_day / 3600);
        put(&mut self.text, 14..16, of_day / 60 % 60);
        put(&mut self.text, 17..19, of_day % 60);
    }
}

/// Writes decimal digits.
fn put(text: &mut [u8], range: std::ops::Range<usize>, mut number: u64) {
    for digit in text.get_mut(range).unwrap_or_default().iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// Returns the Gregorian date of a day after 1970-01-01: year, month and day of the month. Years begin in March here,
/// so that the leap day is the last one.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests;
