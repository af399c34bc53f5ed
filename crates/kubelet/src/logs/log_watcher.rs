//! Changes of followed logs, by inotify.

use futures::StreamExt;
use inotify::{Event, EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use parking_lot::Mutex;
use std::{collections::HashMap, ffi::OsString, io, path::Path, sync::Arc, time::Duration};
use tokio::sync::watch;

/// Interval at which a log is read that cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which a watched log is read nevertheless: not all file systems report all changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Delay between batches of events, so that many short lines are read in one block.
const BATCH_DELAY: Duration = Duration::from_millis(5);
/// Events in a batch.
const BATCH: usize = 1024;
/// Size of the event buffer in bytes.
const BUFFER: usize = 4096;

/// Watches the directories of followed logs, in which logs are also rotated. One inotify instance is for all readers and stays
/// open: a user may have 128, those of containers included.
#[derive(Clone, Default)]
pub(crate) struct LogWatcher(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    watches: Option<Watches>,
    directories: HashMap<WatchDescriptor, Directory>,
}

struct Directory {
    changes: watch::Sender<()>,
    readers: usize,
}

/// Watch of a log, for one reader.
pub(crate) struct LogWatch {
    watcher: LogWatcher,
    watched: Option<(WatchDescriptor, watch::Receiver<()>)>,
}

impl LogWatcher {
    /// Watches a log. One that cannot be watched is polled.
    pub(crate) async fn watch(&self, log: &Path) -> LogWatch {
        let (watcher, dir) = (self.clone(), log.parent().unwrap_or(log).to_owned());
        // Its result has the watch, so that a request that is cancelled meanwhile leaves none.
        let added = tokio::task::spawn_blocking(move || {
            let watched = watcher.add(&dir)?;
            Ok(LogWatch { watcher, watched: Some(watched) })
        });
        added.await.map_err(io::Error::from).flatten().unwrap_or_else(|error| {
            tracing::debug!(%error, log = %log.display(), "failed to watch log, polling instead");
            LogWatch { watcher: self.clone(), watched: None }
        })
    }

    fn add(&self, dir: &Path) -> io::Result<(WatchDescriptor, watch::Receiver<()>)> {
        let mut state = self.0.lock();
        let watches = match &mut state.watches {
            Some(watches) => watches,
            none => none.insert(self.start()?),
        };
        let changes = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO;
        let descriptor = watches.add(dir, changes | WatchMask::ONLYDIR)?;
        let directory = state.directories.entry(descriptor.clone());
        let directory = directory.or_insert_with(|| Directory { changes: watch::Sender::new(()), readers: 0 });
        directory.readers += 1;
        Ok((descriptor, directory.changes.subscribe()))
    }

    /// Opens the inotify instance, and starts the task that reads its events.
    fn start(&self) -> io::Result<Watches> {
        let inotify = Inotify::init()?;
        let watches = inotify.watches();
        let events = inotify.into_event_stream(vec![0; BUFFER])?;
        tokio::spawn(publish(events, Arc::downgrade(&self.0)));
        Ok(watches)
    }

    fn remove(&self, descriptor: &WatchDescriptor) {
        let mut state = self.0.lock();
        let Some(directory) = state.directories.get_mut(descriptor) else { return };
        directory.readers -= 1;
        if directory.readers == 0 {
            state.directories.remove(descriptor);
            if let Some(watches) = &mut state.watches {
                // The directory may have been removed.
                let _ = watches.remove(descriptor.clone());
            }
        }
    }
}

impl State {
    fn publish(&mut self, event: io::Result<Event<OsString>>) {
        match event {
            Ok(event) if event.mask.contains(EventMask::Q_OVERFLOW) => {
                self.directories.values().for_each(|directory| directory.changes.send_replace(()));
            }
            // The directory was removed: its readers poll from now on.
            Ok(event) if event.mask.contains(EventMask::IGNORED) => drop(self.directories.remove(&event.wd)),
            Ok(event) => {
                if let Some(directory) = self.directories.get(&event.wd) {
                    directory.changes.send_replace(());
                }
            }
            // All readers poll; the next one opens another instance.
            Err(error) => {
                tracing::warn!(%error, "failed to read changes of logs");
                *self = Self::default();
            }
        }
    }
}

/// Publishes events, until there is one after the watcher was dropped.
async fn publish(events: EventStream<Vec<u8>>, state: std::sync::Weak<Mutex<State>>) {
    let mut batches = events.ready_chunks(BATCH);
    while let Some(batch) = batches.next().await {
        let Some(state) = state.upgrade() else { return };
        for event in batch {
            let is_failed = event.is_err();
            state.lock().publish(event);
            if is_failed {
                return;
            }
        }
        drop(state);
        tokio::time::sleep(BATCH_DELAY).await;
    }
}

impl LogWatch {
    /// Waits until the log may have changed since the previous call.
    pub(crate) async fn changed(&mut self) {
        if let Some((_, changes)) = &mut self.watched
            && !matches!(tokio::time::timeout(CHECK_INTERVAL, changes.changed()).await, Ok(Err(_)))
        {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl Drop for LogWatch {
    fn drop(&mut self) {
        if let Some((descriptor, _)) = &self.watched {
            self.watcher.remove(descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    /// Waits for an event; a poll is none.
    async fn wait_event(watch: &mut LogWatch) {
        let (_, changes) = watch.watched.as_mut().expect("the directory is watched");
        let changed = tokio::time::timeout(Duration::from_secs(10), changes.changed()).await;
        changed.expect("an event").expect("the directory is watched");
    }

    #[tokio::test]
    async fn writes_and_rotations_are_events_for_all_readers() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let mut file = fs::File::create(&log).unwrap();
        let watcher = LogWatcher::default();
        let (mut first, mut second) = (watcher.watch(&log).await, watcher.watch(&log).await);
        file.write_all(b"one\n").unwrap();
        tokio::join!(wait_event(&mut first), wait_event(&mut second));
        drop(second);
        fs::rename(&log, dir.path().join("0.log.1")).unwrap();
        wait_event(&mut first).await;
        fs::write(&log, "two\n").unwrap();
        wait_event(&mut first).await;
        drop(first);
        assert!(watcher.0.lock().directories.is_empty(), "the last reader ends the watch");
        let mut third = watcher.watch(&log).await;
        fs::write(&log, "three\n").unwrap();
        wait_event(&mut third).await;
    }

    #[tokio::test]
    async fn overflow_of_the_queue_is_a_change_of_all_logs() {
        let dir = tempfile::tempdir().unwrap();
        let watcher = LogWatcher::default();
        let mut watch = watcher.watch(&dir.path().join("0.log")).await;
        let (wd, _) = watch.watched.as_ref().unwrap();
        let overflow = Event { wd: wd.clone(), mask: EventMask::Q_OVERFLOW, cookie: 0, name: None };
        watcher.0.lock().publish(Ok(overflow));
        wait_event(&mut watch).await;
    }

    #[tokio::test]
    async fn log_that_cannot_be_watched_is_polled() {
        let dir = tempfile::tempdir().unwrap();
        let watcher = LogWatcher::default();
        watcher.watch(&dir.path().join("missing/0.log")).await.changed().await;
        let log = dir.path().join("container/0.log");
        fs::create_dir(dir.path().join("container")).unwrap();
        let mut watch = watcher.watch(&log).await;
        fs::remove_dir(dir.path().join("container")).unwrap();
        let (_, changes) = watch.watched.as_mut().unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(10), changes.changed()).await;
        assert!(ended.expect("an event").is_err(), "the watch ends with the directory");
        watch.changed().await;
        drop(watch);
        assert!(watcher.0.lock().directories.is_empty());
    }
}
