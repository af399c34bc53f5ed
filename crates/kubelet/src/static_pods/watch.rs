//! inotify watch of a manifest directory. Missed changes are found by the periodic read.

use futures::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchMask};
use std::{
    future, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Quiet time after the last change, because editors change a file in several steps.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Limit of the debouncing.
const MAX_DEBOUNCE: Duration = Duration::from_secs(1);
/// Size of the event buffer in bytes.
const BUFFER: usize = 4096;

/// Watches a directory, or the directory of a file.
pub(super) struct Watch {
    path: PathBuf,
    events: Option<EventStream<Vec<u8>>>,
}

impl Watch {
    pub(super) fn new(path: &Path) -> Self {
        let mut watch = Self { path: path.to_owned(), events: None };
        watch.begin();
        watch
    }

    fn begin(&mut self) {
        match open(&self.path) {
            Ok(events) => self.events = Some(events),
            Err(error) => {
                tracing::debug!(%error, path = %self.path.display(), "failed to watch manifests, polling instead");
            }
        }
    }

    /// Waits for a debounced change. If the directory cannot be watched, it never returns; each call retries the watch.
    pub(super) async fn changed(&mut self) {
        if self.events.is_none() {
            self.begin();
        }
        let Some(events) = &mut self.events else { return future::pending().await };
        let mut there = next(events).await;
        let rest = async {
            while let (true, Ok(next_changed)) = (there, tokio::time::timeout(DEBOUNCE, next(events)).await) {
                there = next_changed;
            }
        };
        let _ = tokio::time::timeout(MAX_DEBOUNCE, rest).await;
        if !there {
            self.events = None;
        }
    }
}

fn open(path: &Path) -> io::Result<EventStream<Vec<u8>>> {
    let dir = if path.is_file() { path.parent().unwrap_or(path) } else { path };
    let inotify = Inotify::init()?;
    let files = WatchMask::CLOSE_WRITE | WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE;
    inotify.watches().add(dir, files | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF)?;
    inotify.into_event_stream(vec![0; BUFFER])
}

/// Waits for the next event. Returns whether the directory is still watched.
async fn next(events: &mut EventStream<Vec<u8>>) -> bool {
    let gone = EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF;
    events.next().await.is_some_and(|event| event.is_ok_and(|event| !event.mask.intersects(gone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn file_changes_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        let mut watch = Watch::new(dir.path());
        let changed = async |watch: &mut Watch| {
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.expect("it is told");
        };
        std::fs::write(&file, "1").unwrap();
        changed(&mut watch).await;
        std::fs::write(&file, "2").unwrap();
        changed(&mut watch).await;
        std::fs::remove_file(&file).unwrap();
        changed(&mut watch).await;
        // A recreated directory is watched again.
        std::fs::remove_dir(dir.path()).unwrap();
        changed(&mut watch).await;
        std::fs::create_dir(dir.path()).unwrap();
        watch.begin();
        std::fs::write(&file, "3").unwrap();
        changed(&mut watch).await;
    }
}
