//! Container logs in CRI format, exits and termination messages.

mod file;
mod log_watcher;
mod termination_message;

pub(crate) use file::LogFile;
pub(crate) use log_watcher::{LogWatch, LogWatcher};

use crate::{Shared, blocking};
use jiff::Timestamp;
use lifecycle::{ContainerExit, Pod};
use runtime::ContainerStatus;
use std::path::PathBuf;

/// Exit code after SIGKILL.
pub(crate) const KILLED: i32 = 137;
/// Reason of a container that was killed by the kernel's OOM killer.
pub(crate) const OOM_KILLED: &str = "OOMKilled";

/// Returns the exit of a container, with its termination message.
pub(crate) async fn container_exit(shared: &Shared, pod: &Pod, status: &ContainerStatus) -> ContainerExit {
    let exit = status.exit.clone();
    let (code, mut reason) = exit.as_ref().map_or((KILLED, "Unknown".to_owned()), |e| (e.code, e.reason.clone()));
    // Containers of a deleted Pod are killed by the kubelet.
    let is_deleted = pod.object().metadata.deletion_timestamp.is_some();
    let may_be_oom = code == KILLED && reason != OOM_KILLED && !is_deleted;
    let file = shared.paths.termination_message(pod.uid(), &status.name, status.attempt);
    let log = falls_back_to_logs(pod, &status.name, code).then(|| log_path(shared, pod, &status.name, status.attempt));
    let id = status.id.0.clone();
    let read = blocking::run_infallible(move || {
        (may_be_oom && crate::oom::was_oom_killed(&id), termination_message::read(&file, log.as_deref()))
    });
    let (is_oom, mut message) = read.await.unwrap_or_default();
    if is_oom {
        OOM_KILLED.clone_into(&mut reason);
    }
    if message.is_empty() {
        message = exit.as_ref().map(|e| e.message.clone()).unwrap_or_default();
    }
    ContainerExit {
        code,
        reason,
        message,
        started_at: status.started_at,
        finished_at: exit.map_or(status.created_at, |e| e.finished_at),
    }
}

/// Returns the content of a container's termination message file.
pub(crate) async fn read_termination_message(shared: &Shared, pod: &Pod, container: &str, attempt: u32) -> String {
    let file = shared.paths.termination_message(pod.uid(), container, attempt);
    blocking::run_infallible(move || termination_message::read(&file, None)).await.unwrap_or_default()
}

/// Returns whether the end of the log replaces a missing termination message for this exit code.
pub(crate) fn falls_back_to_logs(pod: &Pod, container: &str, code: i32) -> bool {
    let policy = pod.spec_of(container).and_then(|c| c.termination_message_policy.as_deref());
    code != 0 && policy == Some("FallbackToLogsOnError")
}

/// Returns the path of a container's log.
pub(crate) fn log_path(shared: &Shared, pod: &Pod, container: &str, attempt: u32) -> PathBuf {
    shared.paths.log(pod.object(), container, attempt)
}

/// Log line in CRI format: `TIME STREAM TAG CONTENT`.
pub(crate) struct Line<'a> {
    pub(crate) time: &'a [u8],
    /// Content with its newline, unless the line is partial.
    pub(crate) content: &'a [u8],
}

/// Parses a log line. Malformed lines are skipped, as upstream does.
pub(crate) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |b| *b == b' ');
    let (time, _stream, tag, content) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let content = if tag.starts_with(b"P") { content.strip_suffix(b"\n").unwrap_or(content) } else { content };
    Some(Line { time, content })
}

/// Options for reading a log (`PodLogOptions`).
#[derive(Debug, Clone, Default)]
pub(crate) struct LogOptions {
    pub(crate) since: Option<Timestamp>,
    pub(crate) timestamps: bool,
    pub(crate) limit_bytes: Option<usize>,
}

/// Formats whole raw log lines.
pub(crate) fn render(raw: &[u8], options: &LogOptions) -> Vec<u8> {
    let mut out = Vec::new();
    for line in raw.split_inclusive(|b| *b == b'\n').filter_map(parse) {
        if let Some(since) = options.since {
            let time = std::str::from_utf8(line.time).ok().and_then(|t| t.parse::<Timestamp>().ok());
            if time.is_none_or(|t| t < since) {
                continue;
            }
        }
        if options.timestamps {
            out.extend_from_slice(line.time);
            out.push(b' ');
        }
        out.extend_from_slice(line.content);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"2026-01-01T00:00:00.1Z stdout F one\nbroken\n2026-01-01T00:00:01Z stderr P tw\n2026-01-01T00:00:01Z stderr F o\n";

    #[track_caller]
    fn check(options: &LogOptions, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&render(LOG, options)), expected);
    }

    #[test]
    fn log_lines_are_rendered_with_options() {
        check(&LogOptions::default(), "one\ntwo\n");
        check(&LogOptions { since: "2026-01-01T00:00:01Z".parse().ok(), ..LogOptions::default() }, "two\n");
        let timestamps = LogOptions { timestamps: true, ..LogOptions::default() };
        check(&timestamps, "2026-01-01T00:00:00.1Z one\n2026-01-01T00:00:01Z tw2026-01-01T00:00:01Z o\n");
    }
}
