//! Rotation of large container logs (upstream's `pkg/kubelet/logs/container_log_manager.go`): `0.log` is renamed to
//! `0.log.20260101-000000`, the previous one is compressed, and the oldest ones are removed.

use crate::{Shared, blocking, logs};
use flate2::{Compression, write::GzEncoder};
use parking_lot::Mutex;
use runtime::{ContainerId, RuntimeError};
use std::{
    collections::HashSet,
    ffi::OsStr,
    fmt::Display,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const COMPRESS_SUFFIX: &str = "gz";
/// Suffix of a file that is being compressed.
const TMP_SUFFIX: &str = "tmp";

/// A container can write much more than `containerLogMaxSize` within the default `containerLogMonitorInterval` of 10 s.
const MAX_MONITOR_INTERVAL: Duration = Duration::from_secs(1);

/// Failure to rotate a log.
#[derive(Debug, thiserror::Error)]
enum RotationError {
    /// The file system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The runtime did not open the new log.
    #[error(transparent)]
    Reopen(#[from] RuntimeError),
    /// The runtime did not open the new log, and the old one could not be renamed back.
    #[error("{reopen}; failed to restore the log: {restore}")]
    Restore { reopen: RuntimeError, restore: io::Error },
}

/// Container ids whose log is being rotated, and whose rotated logs are being compressed. A log may be rotated again while
/// its older files are still being compressed.
#[derive(Default)]
struct InProgress {
    rotating: Mutex<HashSet<String>>,
    compressing: Mutex<HashSet<String>>,
}

/// Rotates the logs of running containers until stopped.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let interval = shared.options.config.container_log_monitor_interval.min(MAX_MONITOR_INTERVAL);
    let in_progress = Arc::new(InProgress::default());
    while shared.stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
        for (id, path) in running_container_logs(shared) {
            if !is_due(&path, shared.options.config.container_log_max_size)
                || !in_progress.rotating.lock().insert(id.clone())
            {
                continue;
            }
            // A task for each log: a runtime that hangs for one container does not block the others.
            tokio::spawn(rotate_and_compress(Arc::clone(shared), Arc::clone(&in_progress), id, path));
        }
    }
}

async fn rotate_and_compress(shared: Arc<Shared>, in_progress: Arc<InProgress>, id: String, path: PathBuf) {
    let rotated = rotate(&shared, &id, &path).await;
    in_progress.rotating.lock().remove(&id);
    log_failure(rotated, &path, "failed to rotate log");
    if !in_progress.compressing.lock().insert(id.clone()) {
        return;
    }
    let log = path.clone();
    let compressed = blocking::run(move || compress_rotated(&log)).await;
    in_progress.compressing.lock().remove(&id);
    log_failure(compressed, &path, "failed to compress rotated logs");
}

fn log_failure(result: Result<(), impl Display>, path: &Path, message: &str) {
    if let Err(error) = result {
        tracing::warn!(%error, path = %path.display(), "{message}");
    }
}

fn running_container_logs(shared: &Shared) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
        let Some(spec) = pod.object().spec.as_ref() else { continue };
        for (_, container) in api::pod::containers(spec).filter(|(_, c)| pod.is_running(&c.name)) {
            if let Some((id, attempt)) = pod.container_id(&container.name, false) {
                found.push((id, logs::log_path(shared, &pod, &container.name, attempt)));
            }
        }
    }
    found
}

/// Returns whether a log must be rotated. A missing one must be, too: the runtime then opens a new one.
fn is_due(path: &Path, max_size: u64) -> bool {
    fs::metadata(path).map_or_else(|e| e.kind() == io::ErrorKind::NotFound, |m| m.len() >= max_size)
}

/// Rotates the log of a container (`rotateLog`).
async fn rotate(shared: &Shared, id: &str, path: &Path) -> Result<(), RotationError> {
    let reopen = async || shared.runtime.reopen_log(&ContainerId(id.to_owned())).await;
    if !path.exists() {
        return Ok(reopen().await?);
    }
    let (log, keep) = (path.to_owned(), shared.options.config.container_log_max_files.saturating_sub(2));
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    blocking::run(move || remove_excess_logs(&log, keep)).await?;
    let stamp = shared.now().strftime("%Y%m%d-%H%M%S").to_string();
    rotate_latest_log(path, &stamp, reopen).await
}

/// Renames the log and lets the runtime open a new one. Restores the log if the runtime fails.
async fn rotate_latest_log(
    path: &Path,
    stamp: &str,
    reopen: impl AsyncFnOnce() -> Result<(), RuntimeError>,
) -> Result<(), RotationError> {
    let rotated = with_suffix(path, stamp);
    if rotated.exists() {
        // Already rotated within this second; the log is still due at the next check.
        return Ok(());
    }
    fs::rename(path, &rotated)?;
    let Err(error) = reopen().await else { return Ok(()) };
    match fs::rename(&rotated, path) {
        Ok(()) => Err(error.into()),
        Err(restore) => Err(RotationError::Restore { reopen: error, restore }),
    }
}

/// Removes all rotated logs but the newest `keep`; with the log itself and the one that is rotated next, that makes
/// `containerLogMaxFiles`.
fn remove_excess_logs(log: &Path, keep: usize) -> io::Result<()> {
    let mut complete: Vec<PathBuf> =
        rotated(log)?.into_iter().filter(|path| !has_extension(path, TMP_SUFFIX)).collect();
    let excess = complete.len().saturating_sub(keep);
    complete.drain(..excess).try_for_each(remove_if_exists)
}

/// Compresses rotated logs except for the newest one, which the runtime may still write to.
fn compress_rotated(log: &Path) -> io::Result<()> {
    let all = rotated(log)?;
    // Removes the leftovers of an interrupted compression.
    let (leftovers, mut rotated): (Vec<PathBuf>, Vec<PathBuf>) = all
        .iter()
        .cloned()
        .partition(|path| has_extension(path, TMP_SUFFIX) || all.contains(&with_suffix(path, COMPRESS_SUFFIX)));
    leftovers.into_iter().try_for_each(remove_if_exists)?;
    rotated.pop();
    rotated.iter().filter(|path| !has_extension(path, COMPRESS_SUFFIX)).try_for_each(|path| compress(path))
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}

fn remove_if_exists(path: PathBuf) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Returns the rotated logs, oldest first: their names end with the time.
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
    let tmp = with_suffix(path, TMP_SUFFIX);
    let mut encoder = GzEncoder::new(File::create(&tmp)?, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    let compressed = encoder.finish()?;
    compressed.set_permissions(fs::metadata(path)?.permissions())?;
    compressed.sync_all()?;
    fs::rename(&tmp, with_suffix(path, COMPRESS_SUFFIX))?;
    // The original may already be removed as an excess log.
    remove_if_exists(path.to_owned())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Removes the log of a container and its rotated logs.
pub(crate) fn remove(log: &Path) -> io::Result<()> {
    let all = match rotated(log) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        all => all?,
    };
    all.into_iter().chain([log.to_owned()]).try_for_each(remove_if_exists)
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

    /// Opens a log like a runtime.
    fn write(log: &Path, text: &str) -> Result<(), RuntimeError> {
        fs::write(log, text).map_err(|e| RuntimeError::Failed(e.to_string()))
    }

    /// Rotates once per stamp. Each rotated log contains its own stamp.
    async fn rotate_all(dir: &Path, stamps: &[&str], keep: usize) -> PathBuf {
        let log = dir.join("0.log");
        for stamp in stamps {
            fs::write(&log, stamp).unwrap();
            remove_excess_logs(&log, keep).unwrap();
            rotate_latest_log(&log, stamp, async || write(&log, "")).await.unwrap();
            compress_rotated(&log).unwrap();
        }
        log
    }

    #[tokio::test]
    async fn rotation_keeps_the_newest_logs_and_compresses_older_ones() {
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
    async fn failed_reopen_restores_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, "kept").unwrap();
        let error = rotate_latest_log(&log, "1", async || Err(RuntimeError::Failed("no".to_owned()))).await;
        assert_eq!(
            (error.unwrap_err().to_string().as_str(), names(dir.path()).as_slice()),
            ("no", &["0.log".to_owned()][..])
        );
        assert_eq!(crate::host_file::read_text(&log).unwrap(), "kept");
    }

    #[tokio::test]
    async fn second_rotation_within_a_second_overwrites_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let reopen = async || write(&log, "second");
        fs::write(&log, "first").unwrap();
        rotate_latest_log(&log, "1", reopen).await.unwrap();
        rotate_latest_log(&log, "1", async || Err(RuntimeError::Failed("not asked".to_owned()))).await.unwrap();
        let text = |name: &str| crate::host_file::read_text(dir.path().join(name)).unwrap();
        assert_eq!((text("0.log.1"), text("0.log")), ("first".to_owned(), "second".to_owned()));
    }

    #[tokio::test]
    async fn flood_is_bounded_while_older_logs_are_not_compressed_yet() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for stamp in ["1", "2", "3", "4", "5", "6"] {
            fs::write(&log, stamp).unwrap();
            remove_excess_logs(&log, 3).unwrap();
            rotate_latest_log(&log, stamp, async || write(&log, "")).await.unwrap();
        }
        assert_eq!(names(dir.path()), ["0.log", "0.log.3", "0.log.4", "0.log.5", "0.log.6"]);
    }

    #[tokio::test]
    async fn leftovers_of_a_crash_are_removed() {
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
    fn log_is_due_if_large_or_missing() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        assert!(is_due(&log, 3));
        fs::write(&log, "12").unwrap();
        assert!(!is_due(&log, 3));
        fs::write(&log, "123").unwrap();
        assert!(is_due(&log, 3));
    }
}
