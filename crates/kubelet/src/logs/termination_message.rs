//! Termination messages with upstream's limits (`getTerminationMessage`, `readLastStringFromContainerLogs`). Only the end of
//! a file is read.

use super::parse;
use crate::{os_error, untrusted_file};
use std::{
    io::{self, ErrorKind},
    path::Path,
};

/// `MaxContainerTerminationMessageLength`.
const MESSAGE_BYTES: usize = 4096;
/// `MaxContainerTerminationMessageLogLines`.
const FALLBACK_LINES: usize = 80;
/// `MaxContainerTerminationMessageLogLength`.
const FALLBACK_BYTES: usize = 2048;
/// Bytes that are read from the end of a log: enough for 80 lines with 2,048 bytes of content, or a line of the usual
/// 16 KiB.
const FALLBACK_READ: usize = 64 << 10;

/// Returns the last bytes of the message file, or the last lines of the log if there is no message.
pub(super) fn read(file: &Path, log: Option<&Path>) -> String {
    match untrusted_file::open(file).and_then(|file| untrusted_file::read_end(&file, MESSAGE_BYTES)) {
        Ok((end, _)) if !end.is_empty() => text(&end),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            format!("Error on reading termination log {}: {}", file.display(), os_error::message(&error))
        }
        _ => log.map(last_lines).and_then(Result::ok).unwrap_or_default(),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn last_lines(log: &Path) -> io::Result<String> {
    let (end, is_whole) = untrusted_file::read_end(&untrusted_file::open(log)?, FALLBACK_READ)?;
    let mut contents = Vec::new();
    let mut length = 0;
    let mut lines = end.split_inclusive(|byte| *byte == b'\n').enumerate().collect::<Vec<_>>();
    while let Some((index, line)) = lines.pop().filter(|_| contents.len() < FALLBACK_LINES && length < FALLBACK_BYTES) {
        // The first line is cut, unless the whole log was read. It counts only if it is so long that its end is content.
        let content = if index == 0 && !is_whole { line } else { parse(line).map_or(&[][..], |l| l.content) };
        length += content.len();
        contents.push(content);
    }
    contents.reverse();
    let tail = contents.concat();
    Ok(text(&tail[tail.len().saturating_sub(FALLBACK_BYTES)..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, OpenOptions},
        os::unix::fs::{FileExt, symlink},
        path::PathBuf,
    };

    struct Files {
        _dir: tempfile::TempDir,
        message: PathBuf,
        log: PathBuf,
    }

    fn files() -> Files {
        let dir = tempfile::tempdir().unwrap();
        Files { message: dir.path().join("message"), log: dir.path().join("0.log"), _dir: dir }
    }

    /// Creates a sparse file of 1 TiB that ends with these bytes.
    fn sparse(path: &Path, end: &[u8]) {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(end, (1 << 40) - end.len() as u64).unwrap();
    }

    #[test]
    fn message_is_the_end_of_a_huge_file() {
        let files = files();
        let end = "e".repeat(MESSAGE_BYTES);
        sparse(&files.message, format!("before{end}").as_bytes());
        assert_eq!(read(&files.message, Some(&files.log)), end);
    }

    #[test]
    fn message_is_not_read_through_a_link_or_from_a_fifo() {
        let files = files();
        let expected = format!("Error on reading termination log {}: not a regular file", files.message.display());
        symlink("/etc/passwd", &files.message).unwrap();
        assert_eq!(read(&files.message, None), expected);
        fs::remove_file(&files.message).unwrap();
        nix::unistd::mkfifo(&files.message, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(read(&files.message, None), expected);
    }

    #[track_caller]
    fn check_fallback(log: &[u8], expected: &str) {
        let files = files();
        fs::write(&files.log, log).unwrap();
        assert_eq!(read(&files.message, Some(&files.log)), expected, "without a message");
        fs::write(&files.message, "").unwrap();
        assert_eq!(read(&files.message, Some(&files.log)), expected, "with an empty message");
        assert_eq!(read(&files.message, None), "");
        fs::write(&files.message, "own").unwrap();
        assert_eq!(read(&files.message, Some(&files.log)), "own");
    }

    #[test]
    fn fallback_message_is_the_end_of_the_log() {
        let line = |content: &str| format!("2026-01-01T00:00:00.123456789Z stdout F {content}\n");
        check_fallback(b"", "");
        check_fallback(line("one").as_bytes(), "one\n");
        let numbered = |range: std::ops::RangeInclusive<u32>| range.map(|n| line(&n.to_string())).collect::<String>();
        let shown = |range: std::ops::RangeInclusive<u32>| range.map(|n| format!("{n}\n")).collect::<String>();
        check_fallback(numbered(1..=100).as_bytes(), &shown(21..=100));
        check_fallback(numbered(1..=50_000).as_bytes(), &shown(49_921..=50_000));
        // 40 lines of 100 bytes: the last 2,048 bytes.
        let long = format!("{}\n", "x".repeat(99)).repeat(40);
        let lines = line(&"x".repeat(99)).repeat(40);
        check_fallback(lines.as_bytes(), &long[long.len() - FALLBACK_BYTES..]);
        // A line that is longer than the part that is read.
        let endless = line(&"y".repeat(1 << 20));
        check_fallback(endless.as_bytes(), &format!("{}\n", "y".repeat(FALLBACK_BYTES - 1)));
        check_fallback(&vec![b'z'; 1 << 20], &"z".repeat(FALLBACK_BYTES));
    }

    #[test]
    fn fallback_message_of_a_huge_log_is_bounded() {
        let files = files();
        sparse(&files.log, b"\n2026-01-01T00:00:00Z stdout F last\n");
        let message = read(&files.message, Some(&files.log));
        assert_eq!((message.len(), message.ends_with("\nlast\n")), (FALLBACK_BYTES, true));
    }
}
