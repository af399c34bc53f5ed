//! Changes of a directory, told by the kernel. What it does not tell, the next look finds.

use futures::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchMask};
use std::{
    future, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Editors and copies change a file in several steps: after a change nothing is to happen for so long.
const QUIET: Duration = Duration::from_millis(50);
/// But nobody waits longer than this for a directory that never rests.
const LONGEST: Duration = Duration::from_secs(1);
/// Room for some events at a time.
const BUFFER: usize = 4096;

/// Watches a directory, or that of a file.
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
                tracing::debug!(%error, path = %self.path.display(), "no watch is possible; it is looked at now and then");
            }
        }
    }

    /// Waits until something changed, and has come to rest. Where no watch is possible that is never; each call tries.
    pub(super) async fn changed(&mut self) {
        if self.events.is_none() {
            self.begin();
        }
        let Some(events) = &mut self.events else { return future::pending().await };
        let mut there = next(events).await;
        let rest = async {
            while let (true, Ok(more)) = (there, tokio::time::timeout(QUIET, next(events)).await) {
                there = more;
            }
        };
        let _ = tokio::time::timeout(LONGEST, rest).await;
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

/// Waits for the next event; gives whether the directory is still the one that is watched.
async fn next(events: &mut EventStream<Vec<u8>>) -> bool {
    let gone = EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF;
    events.next().await.is_some_and(|event| event.is_ok_and(|event| !event.mask.intersects(gone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_comes_changes_or_goes_is_told() {
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
        // A directory that goes and comes again is watched again.
        std::fs::remove_dir(dir.path()).unwrap();
        changed(&mut watch).await;
        std::fs::create_dir(dir.path()).unwrap();
        watch.begin();
        std::fs::write(&file, "3").unwrap();
        changed(&mut watch).await;
    }
}
