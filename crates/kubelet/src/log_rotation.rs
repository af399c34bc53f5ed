//! Logs of running containers are rotated when they are large (upstream's `pkg/kubelet/logs/container_log_manager.go`):
//! `0.log` becomes `0.log.20260101-000000`, the one before that is compressed, and the oldest ones go.

use crate::{Shared, logs};
use flate2::{Compression, write::GzEncoder};
use parking_lot::Mutex;
use runtime::ContainerId;
use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

const COMPRESSED: &str = "gz";
/// A file that is being compressed.
const UNFINISHED: &str = "tmp";

/// Looks at the logs of all running containers, until told to stop.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let pause = shared.options.config.container_log_monitor_interval;
    let busy = Arc::new(Mutex::new(HashSet::new()));
    while shared.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        for (id, path) in running(shared) {
            if !is_due(&path, shared.options.config.container_log_max_size) || !busy.lock().insert(id.clone()) {
                continue;
            }
            // A runtime that hangs over one container keeps no other from its turn.
            let (shared, busy) = (Arc::clone(shared), Arc::clone(&busy));
            tokio::spawn(async move {
                if let Err(error) = rotate(&shared, &id, &path).await {
                    tracing::warn!(%error, path = %path.display(), "a log was not rotated");
                }
                busy.lock().remove(&id);
            });
        }
    }
}

fn running(shared: &Shared) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for handle in shared.pods.all() {
        let pod = handle.known.borrow().clone();
        let Some(spec) = pod.object().spec.as_ref() else { continue };
        for (_, container) in api::pod::containers(spec).filter(|(_, c)| pod.is_running(&c.name)) {
            if let Some((id, attempt)) = pod.container_id(&container.name, false) {
                found.push((id, logs::path(shared, &pod, &container.name, attempt)));
            }
        }
    }
    found
}

/// A log that is gone is due, too: the runtime is asked to open a new one.
fn is_due(path: &Path, max_size: u64) -> bool {
    fs::metadata(path).map_or_else(|e| e.kind() == io::ErrorKind::NotFound, |m| m.len() >= max_size)
}

async fn rotate(shared: &Shared, id: &str, path: &Path) -> Result<(), String> {
    let reopen = async || shared.runtime.reopen_log(&ContainerId(id.to_owned())).await.map_err(|e| e.to_string());
    if !path.exists() {
        return reopen().await;
    }
    let (log, keep) = (path.to_owned(), shared.options.config.container_log_max_files.saturating_sub(2));
    let make_room = move || make_room(&log, usize::try_from(keep).unwrap_or(usize::MAX));
    tokio::task::spawn_blocking(make_room).await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    let stamp = shared.now().strftime("%Y%m%d-%H%M%S").to_string();
    exchange(path, &stamp, reopen).await
}

/// Sets the log aside and has the runtime begin a new one. When it cannot, everything is as it was.
async fn exchange(path: &Path, stamp: &str, reopen: impl AsyncFnOnce() -> Result<(), String>) -> Result<(), String> {
    let aside = with_suffix(path, stamp);
    fs::rename(path, &aside).map_err(|e| e.to_string())?;
    let Err(error) = reopen().await else { return Ok(()) };
    match fs::rename(&aside, path) {
        Ok(()) => Err(error),
        Err(back) => Err(format!("{error}; and it could not be put back: {back}")),
    }
}

/// Compresses rotated logs and removes all but the newest `keep`; with the log itself and the one that follows, that
/// makes `containerLogMaxFiles`.
fn make_room(log: &Path, keep: usize) -> io::Result<()> {
    let mut rotated = rotated(log)?;
    let all = rotated.clone();
    let is = |path: &Path, extension: &str| path.extension() == Some(OsStr::new(extension));
    // What an earlier kubelet left in the middle of a compression.
    rotated.retain(|path| !is(path, UNFINISHED) && !all.contains(&with_suffix(path, COMPRESSED)));
    all.iter().filter(|path| !rotated.contains(path)).try_for_each(fs::remove_file)?;
    let excess = rotated.len().saturating_sub(keep);
    rotated.drain(..excess).try_for_each(fs::remove_file)?;
    rotated.iter().filter(|path| !is(path, COMPRESSED)).try_for_each(|path| compress(path))
}

/// Rotated logs, the oldest first: their names end with the time.
fn rotated(log: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name()) else { return Ok(Vec::new()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn compress(path: &Path) -> io::Result<()> {
    let unfinished = with_suffix(path, UNFINISHED);
    let mut encoder = GzEncoder::new(File::create(&unfinished)?, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    let compressed = encoder.finish()?;
    compressed.set_permissions(fs::metadata(path)?.permissions())?;
    compressed.sync_all()?;
    fs::rename(&unfinished, with_suffix(path, COMPRESSED))?;
    fs::remove_file(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Removes the log of a container and all that was rotated.
pub(crate) fn remove(log: &Path) -> io::Result<()> {
    let all = match rotated(log) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        all => all?,
    };
    for path in all.into_iter().chain([log.to_owned()]) {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Rotates as often as there are stamps, each time a log that holds the stamp of the next one.
    async fn rotate_all(dir: &Path, stamps: &[&str], keep: usize) -> PathBuf {
        let log = dir.join("0.log");
        for stamp in stamps {
            fs::write(&log, stamp).unwrap();
            make_room(&log, keep).unwrap();
            exchange(&log, stamp, async || fs::write(&log, "").map_err(|e| e.to_string())).await.unwrap();
        }
        log
    }

    #[tokio::test]
    async fn the_newest_logs_are_kept_and_older_ones_are_compressed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("10.log"), "another container's").unwrap();
        rotate_all(dir.path(), &["1", "2", "3", "4", "5", "6"], 3).await;
        let expected = ["0.log", "0.log.3.gz", "0.log.4.gz", "0.log.5.gz", "0.log.6", "10.log"];
        assert_eq!(names(dir.path()), expected);
        let mut text = Vec::new();
        let file = File::open(dir.path().join("0.log.4.gz")).unwrap();
        io::copy(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
        assert_eq!(text, b"4");
    }

    #[tokio::test]
    async fn a_runtime_that_does_not_reopen_the_log_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, "kept").unwrap();
        let error = exchange(&log, "1", async || Err("no".to_owned())).await.unwrap_err();
        assert_eq!((error.as_str(), names(dir.path()).as_slice()), ("no", &["0.log".to_owned()][..]));
        assert_eq!(crate::node_file::read_text(&log).unwrap(), "kept");
    }

    #[tokio::test]
    async fn what_a_crash_left_behind_is_cleared_up() {
        let dir = tempfile::tempdir().unwrap();
        let log = rotate_all(dir.path(), &["1", "2"], 3).await;
        fs::write(dir.path().join("0.log.1"), "compressed already").unwrap();
        fs::write(dir.path().join("0.log.2.tmp"), "half").unwrap();
        make_room(&log, 3).unwrap();
        assert_eq!(names(dir.path()), ["0.log", "0.log.1.gz", "0.log.2.gz"]);
        remove(&log).unwrap();
        remove(&log).unwrap();
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn a_log_is_due_when_it_is_large_or_gone() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        assert!(is_due(&log, 3));
        fs::write(&log, "12").unwrap();
        assert!(!is_due(&log, 3));
        fs::write(&log, "123").unwrap();
        assert!(is_due(&log, 3));
    }
}
