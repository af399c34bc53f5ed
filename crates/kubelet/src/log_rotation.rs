//! Logs of running containers are rotated when they are large (upstream's `pkg/kubelet/logs/container_log_manager.go`):
//! `0.log` becomes `0.log.20260101-000000`, the one before that is compressed, and the oldest ones go.

use crate::{Shared, blocking, logs};
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
    time::Duration,
};

const COMPRESSED: &str = "gz";
/// A file that is being compressed.
const UNFINISHED: &str = "tmp";

/// A container can write much more than `containerLogMaxSize` within the ten seconds of `containerLogMonitorInterval`.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// The logs that are being rotated, and those whose rotated files are being compressed. A flood is rotated while what it
/// wrote before is still being compressed.
#[derive(Default)]
struct Busy {
    rotating: Mutex<HashSet<String>>,
    compressing: Mutex<HashSet<String>>,
}

/// Looks at the logs of all running containers, until told to stop.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let pause = shared.options.config.container_log_monitor_interval.min(LONGEST_INTERVAL);
    let busy = Arc::new(Busy::default());
    while shared.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        for (id, path) in running(shared) {
            if !is_due(&path, shared.options.config.container_log_max_size) || !busy.rotating.lock().insert(id.clone())
            {
                continue;
            }
            // A runtime that hangs over one container keeps no other from its turn.
            tokio::spawn(rotate_and_compress(Arc::clone(shared), Arc::clone(&busy), id, path));
        }
    }
}

async fn rotate_and_compress(shared: Arc<Shared>, busy: Arc<Busy>, id: String, path: PathBuf) {
    let rotated = rotate(&shared, &id, &path).await;
    busy.rotating.lock().remove(&id);
    warn_of(rotated, &path, "a log was not rotated");
    if !busy.compressing.lock().insert(id.clone()) {
        return;
    }
    let log = path.clone();
    let compressed = blocking::run(move || compress_rotated(&log).map_err(|e| e.to_string())).await;
    busy.compressing.lock().remove(&id);
    warn_of(compressed, &path, "rotated logs were not compressed");
}

fn warn_of(result: Result<(), String>, path: &Path, what: &str) {
    if let Err(error) = result {
        tracing::warn!(%error, path = %path.display(), "{what}");
    }
}

fn running(shared: &Shared) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
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
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    blocking::run(move || make_room(&log, keep).map_err(|e| e.to_string())).await?;
    let stamp = shared.now().strftime("%Y%m%d-%H%M%S").to_string();
    exchange(path, &stamp, reopen).await
}

/// Sets the log aside and has the runtime begin a new one. When it cannot, everything is as it was.
async fn exchange(path: &Path, stamp: &str, reopen: impl AsyncFnOnce() -> Result<(), String>) -> Result<(), String> {
    let aside = with_suffix(path, stamp);
    if aside.exists() {
        // Rotated within the same second. The next look finds it due again.
        return Ok(());
    }
    fs::rename(path, &aside).map_err(|e| e.to_string())?;
    let Err(error) = reopen().await else { return Ok(()) };
    match fs::rename(&aside, path) {
        Ok(()) => Err(error),
        Err(back) => Err(format!("{error}; and it could not be put back: {back}")),
    }
}

/// Removes all rotated logs but the newest `keep`; with the log itself and the one that follows, that makes
/// `containerLogMaxFiles`.
fn make_room(log: &Path, keep: usize) -> io::Result<()> {
    let mut complete: Vec<PathBuf> = rotated(log)?.into_iter().filter(|path| !has(path, UNFINISHED)).collect();
    let excess = complete.len().saturating_sub(keep);
    complete.drain(..excess).try_for_each(remove_if_there)
}

/// Compresses rotated logs, but for the newest one: the runtime may still write to it.
fn compress_rotated(log: &Path) -> io::Result<()> {
    let all = rotated(log)?;
    // What an earlier kubelet left in the middle of a compression.
    let (left, mut rotated): (Vec<PathBuf>, Vec<PathBuf>) =
        all.iter().cloned().partition(|path| has(path, UNFINISHED) || all.contains(&with_suffix(path, COMPRESSED)));
    left.into_iter().try_for_each(remove_if_there)?;
    rotated.pop();
    rotated.iter().filter(|path| !has(path, COMPRESSED)).try_for_each(|path| compress(path))
}

fn has(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}

fn remove_if_there(path: PathBuf) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
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
    // A flood may have made it one too many meanwhile.
    remove_if_there(path.to_owned())
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
    all.into_iter().chain([log.to_owned()]).try_for_each(remove_if_there)
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
            compress_rotated(&log).unwrap();
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
    async fn second_rotation_within_a_second_overwrites_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let reopen = async || fs::write(&log, "second").map_err(|e| e.to_string());
        fs::write(&log, "first").unwrap();
        exchange(&log, "1", reopen).await.unwrap();
        exchange(&log, "1", async || Err("not asked".to_owned())).await.unwrap();
        let text = |name: &str| crate::node_file::read_text(dir.path().join(name)).unwrap();
        assert_eq!((text("0.log.1"), text("0.log")), ("first".to_owned(), "second".to_owned()));
    }

    #[tokio::test]
    async fn flood_is_bounded_while_older_logs_are_not_compressed_yet() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for stamp in ["1", "2", "3", "4", "5", "6"] {
            fs::write(&log, stamp).unwrap();
            make_room(&log, 3).unwrap();
            exchange(&log, stamp, async || fs::write(&log, "").map_err(|e| e.to_string())).await.unwrap();
        }
        assert_eq!(names(dir.path()), ["0.log", "0.log.3", "0.log.4", "0.log.5", "0.log.6"]);
    }

    #[tokio::test]
    async fn what_a_crash_left_behind_is_cleared_up() {
        let dir = tempfile::tempdir().unwrap();
        let log = rotate_all(dir.path(), &["1", "2"], 3).await;
        fs::write(dir.path().join("0.log.1"), "compressed already").unwrap();
        fs::write(dir.path().join("0.log.2.tmp"), "half").unwrap();
        compress_rotated(&log).unwrap();
        assert_eq!(names(dir.path()), ["0.log", "0.log.1.gz", "0.log.2"]);
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
