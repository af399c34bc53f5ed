//! Image archives in `DIR/images/`, which are imported into the engine's image store beside the kubelet. Its queries for images
//! wait for the end of the import (`EngineOptions::images_imported`), and nothing else does.
//!
//! An archive is imported once: again only after it has changed, or when one of its images is not there any more. One that was
//! refused is reported at each start, and not read again before it has changed, or Podium.

use crate::{data_dir::DataDir, node_event};
use files::trust;
use images::{ImageStore, ImportError};
use kube::Client;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Ends of the names of archives. Other files are ignored, for example those that are being copied.
const EXTENSIONS: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];
/// Maximum number of archives.
const MAX_ARCHIVES: usize = 1000;
/// Maximum number of Events about failed imports at a start.
const MAX_EVENTS: usize = 20;
/// Version of Podium: another one may understand an archive.
const PODIUM_VERSION: &str = env!("CARGO_PKG_VERSION");
/// File with what was imported, below the data directory.
const RECORD: &str = "engine/image-archives.json";

/// The archives of a data directory.
pub(crate) struct ImageArchives {
    dir: PathBuf,
    record: PathBuf,
    store: ImageStore,
    ended: watch::Sender<bool>,
}

/// What was imported.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Directory of the image store.
    store: PathBuf,
    /// Archives by the names of their files.
    archives: BTreeMap<String, Archive>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Archive {
    version: FileVersion,
    /// Names of its images.
    images: Vec<String>,
    /// Why it was not imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
}

/// Refusal of an archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Failure {
    error: String,
    podium_version: String,
}

/// Identity of a file's content. A change of the file changes one of the fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileVersion {
    fn of(metadata: &fs::Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), size: metadata.size(), modified }
    }
}

/// A file that ends with an error when Podium stops.
struct Stoppable<'a>(File, &'a CancellationToken);

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.is_cancelled() { Err(io::Error::other("Podium stops")) } else { self.0.read(buffer) }
    }
}

/// A failed import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedImport {
    archive: PathBuf,
    error: String,
}

/// Imports what is new, and reports failures by Events about the node.
pub(crate) async fn import(archives: ImageArchives, client: Client, node: String, stop: CancellationToken) {
    for FailedImport { archive, error } in archives.import(stop).await.into_iter().take(MAX_EVENTS) {
        let message = format!("failed to import the image archive {}: {error}", archive.display());
        node_event::create(&client, &node_event::event(&node, "Warning", "FailedImageImport", &message)).await;
    }
}

impl ImageArchives {
    /// Returns the archives of a data directory. `store` is the cluster's view of the image store.
    pub(crate) fn new(dir: &DataDir, store: ImageStore) -> Self {
        let ended = watch::Sender::new(false);
        Self { dir: dir.root().join("images"), record: dir.root().join(RECORD), store, ended }
    }

    /// Returns what becomes true when the import has ended, or is closed then.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// Imports what is new, and returns the failures, which are logged.
    ///
    /// A thread of its own does so, for which the end of Podium does not wait: an import can be interrupted at any moment.
    async fn import(self, stop: CancellationToken) -> Vec<FailedImport> {
        let (sender, failures) = oneshot::channel();
        let work = move || {
            let (_, failures) = self.import_all(&stop);
            self.ended.send_replace(true);
            // Nobody waits when Podium stops.
            let _ = sender.send(failures);
        };
        if let Err(error) = thread::Builder::new().name("image-import".to_owned()).spawn(work) {
            tracing::warn!(%error, "failed to import image archives");
        }
        failures.await.unwrap_or_default()
    }

    /// Imports what is new, and returns the number of imported archives, and the failures.
    fn import_all(&self, stop: &CancellationToken) -> (usize, Vec<FailedImport>) {
        let (mut imported, mut failures) = (0, Vec::new());
        let mut failed = |archive: &Path, error: String| {
            tracing::warn!(archive = %archive.display(), error, "failed to import an image archive");
            failures.push(FailedImport { archive: archive.to_owned(), error });
        };
        let paths = match archives(&self.dir) {
            Ok(paths) => paths,
            Err(error) => {
                failed(&self.dir, error.to_string());
                return (0, failures);
            }
        };
        let mut record = self.load();
        let count = record.archives.len();
        record.archives.retain(|name, _| paths.iter().any(|(found, _)| found == name));
        if record.archives.len() != count {
            self.save(&record);
        }
        for (name, path) in paths {
            let known = record.archives.get(&name);
            match self.import_one(&path, known, stop) {
                Ok(None) => {
                    if let Some(failure) = known.and_then(|archive| archive.failure.as_ref()) {
                        failed(&path, failure.error.clone());
                    }
                }
                Ok(Some(archive)) => {
                    match &archive.failure {
                        Some(failure) => failed(&path, failure.error.clone()),
                        None => imported += 1,
                    }
                    // Now: a start that is interrupted must not begin with the first archive again.
                    record.archives.insert(name, archive);
                    self.save(&record);
                }
                Err(_) if stop.is_cancelled() => break,
                Err(error) => failed(&path, format!("{error:#}")),
            }
        }
        (imported, failures)
    }

    /// Imports an archive. Returns what is to be recorded, or `None` if it is known.
    ///
    /// # Errors
    /// If the machine is the cause, and not the content of the archive: then the next start tries again.
    fn import_one(
        &self,
        path: &Path,
        known: Option<&Archive>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Archive>> {
        let metadata = fs::metadata(path)?;
        // A FIFO would block the import.
        anyhow::ensure!(metadata.is_file(), "it is not a file");
        let version = FileVersion::of(&metadata);
        if known.is_some_and(|archive| archive.version == version && self.is_done(archive)) {
            return Ok(None);
        }
        match self.store.import(Stoppable(File::open(path)?, stop), |_| {}) {
            Ok(images) => {
                tracing::info!(archive = %path.display(), ?images, "imported an image archive");
                Ok(Some(Archive { version, images, failure: None }))
            }
            Err(error @ (ImportError::Refused(_) | ImportError::Nameless)) => {
                let failure = Failure { error: error.to_string(), podium_version: PODIUM_VERSION.to_owned() };
                Ok(Some(Archive { version, images: Vec::new(), failure: Some(failure) }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether an unchanged archive need not be read: its images are there, or this version of Podium refused it.
    fn is_done(&self, archive: &Archive) -> bool {
        match &archive.failure {
            Some(failure) => failure.podium_version == PODIUM_VERSION,
            None => archive.images.iter().all(|image| self.store.image(image).is_ok()),
        }
    }

    /// Reads what was imported into this store. A damaged record costs one import.
    fn load(&self) -> Record {
        let record: Option<Record> = fs::read(&self.record).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let is_of_store = |record: &Record| record.store == self.store.root();
        let empty = || Record { store: self.store.root().to_owned(), archives: BTreeMap::new() };
        record.filter(is_of_store).unwrap_or_else(empty)
    }

    fn save(&self, record: &Record) {
        let save = || files::replace_private(&self.record, &serde_json::to_vec(record)?);
        if let Err(error) = save() {
            tracing::warn!(path = %self.record.display(), %error, "failed to record the imported image archives");
        }
    }
}

/// Returns the archives of a directory, which need not exist, sorted by name.
fn archives(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    // It can be a link to another disk, as the image store.
    let dir = trust::resolve(dir)?;
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    trust::check_private(&dir, &fs::symlink_metadata(&dir)?)?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if EXTENSIONS.iter().any(|extension| name.ends_with(extension)) && !name.starts_with('.') {
            found.push((name, entry.path()));
        }
        if found.len() > MAX_ARCHIVES {
            return Err(io::Error::other(format!("more than {MAX_ARCHIVES} archives")));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
