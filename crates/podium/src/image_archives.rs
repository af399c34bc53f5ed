//! Image archives in `DIR/images/`, which are imported into the engine's image store before the kubelet starts.
//!
//! An archive is imported once: again only after it has changed, or when one of its images is not there any more.

use crate::data_dir::DataDir;
use files::trust;
use images::ImageStore;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use tokio_util::sync::CancellationToken;

/// Ends of the names of archives. Other files are ignored, for example those that are being copied.
const EXTENSIONS: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];
/// Maximum number of archives.
const MAX_ARCHIVES: usize = 1000;
/// File with what was imported, below the data directory.
const RECORD: &str = "engine/image-archives.json";

/// The archives of a data directory.
pub(crate) struct ImageArchives {
    dir: PathBuf,
    record: PathBuf,
    store: ImageStore,
}

/// What was imported.
#[derive(Debug, Default, Serialize, Deserialize)]
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

impl ImageArchives {
    /// Returns the archives of a data directory. `store` is the cluster's view of the image store.
    pub(crate) fn new(dir: &DataDir, store: ImageStore) -> Self {
        Self { dir: dir.root().join("images"), record: dir.root().join(RECORD), store }
    }

    /// Imports what is new. An archive that cannot be imported is logged, and tried again at the next start.
    pub(crate) async fn import(self, stop: CancellationToken) {
        if let Err(error) = tokio::task::spawn_blocking(move || self.import_all(&stop)).await {
            tracing::warn!(%error, "failed to import image archives");
        }
    }

    /// Imports what is new, and returns the number of imported archives.
    fn import_all(&self, stop: &CancellationToken) -> usize {
        let paths = match archives(&self.dir) {
            Ok(paths) => paths,
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "failed to list image archives");
                return 0;
            }
        };
        let known = self.load();
        let mut record = Record { store: self.store.root().to_owned(), archives: BTreeMap::new() };
        let mut imported = 0;
        for (name, path) in paths {
            let known = known.archives.get(&name).filter(|_| known.store == record.store);
            match self.import_one(&path, known, stop) {
                Ok((archive, is_new)) => {
                    record.archives.insert(name, archive);
                    imported += usize::from(is_new);
                    // Now: a start that is interrupted must not begin with the first archive again.
                    if is_new {
                        self.save(&record);
                    }
                }
                Err(_) if stop.is_cancelled() => return imported,
                Err(error) => {
                    tracing::warn!(archive = %path.display(), %error, "failed to import an image archive");
                }
            }
        }
        if record.archives.len() != known.archives.len() {
            self.save(&record);
        }
        imported
    }

    /// Imports an archive unless it is known. Returns whether it was imported.
    fn import_one(
        &self,
        path: &Path,
        known: Option<&Archive>,
        stop: &CancellationToken,
    ) -> anyhow::Result<(Archive, bool)> {
        let metadata = fs::metadata(path)?;
        // A FIFO would block the start.
        anyhow::ensure!(metadata.is_file(), "it is not a file");
        let version = FileVersion::of(&metadata);
        let is_there = |archive: &&Archive| archive.images.iter().all(|image| self.store.image(image).is_ok());
        if let Some(archive) = known.filter(|archive| archive.version == version).filter(is_there) {
            return Ok((archive.clone(), false));
        }
        let images = self.store.import(Stoppable(File::open(path)?, stop), |_| {})?;
        tracing::info!(archive = %path.display(), ?images, "imported an image archive");
        Ok((Archive { version, images }, true))
    }

    fn load(&self) -> Record {
        // A damaged record costs one import.
        fs::read(&self.record).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
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
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns an archive with one image, which has no layers.
    fn archive(name: &str) -> Vec<u8> {
        let platform = distribution::Platform::default();
        let config = serde_json::json!({"architecture": platform.architecture, "os": "linux",
            "config": {"Env": [format!("NAME={name}")]}, "rootfs": {"type": "layers", "diff_ids": []}});
        let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": [name], "Layers": []}]);
        let mut tar = Vec::new();
        for (path, data) in [("manifest.json", manifest.to_string()), ("config.json", config.to_string())] {
            let mut header = [0_u8; 512];
            header[..path.len()].copy_from_slice(path.as_bytes());
            header[100..107].copy_from_slice(b"0000644");
            header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
            header[156] = b'0';
            header[257..265].copy_from_slice(b"ustar\x0000");
            header[148..156].copy_from_slice(b"        ");
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            tar.write_all(&header).unwrap();
            tar.write_all(data.as_bytes()).unwrap();
            tar.resize(tar.len().next_multiple_of(512), 0);
        }
        tar.resize(tar.len() + 1024, 0);
        tar
    }

    #[test]
    fn archives_are_imported_once_and_bad_ones_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::create(dir.path(), "data").unwrap().unwrap();
        let store = ImageStore::open(&dir.path().join("store")).unwrap().of_cluster(data_dir.root()).unwrap();
        let import = || ImageArchives::new(&data_dir, store.clone()).import_all(&CancellationToken::new());
        files::create_private_dir_all(&data_dir.root().join("engine")).unwrap();
        assert_eq!(import(), 0, "the directory need not exist");
        let images = data_dir.root().join("images");
        fs::create_dir(&images).unwrap();
        for (file, data) in [
            ("a.tar", archive("a:1")),
            ("b.tar", b"no archive".to_vec()),
            ("c.txt", archive("c:1")),
            (".d.tar", archive("d:1")),
        ] {
            fs::write(images.join(file), data).unwrap();
        }
        fs::create_dir(images.join("e.tar")).unwrap();
        nix::unistd::mkfifo(&images.join("f.tar"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let names = || store.list().unwrap().into_iter().flat_map(|image| image.tags).collect::<Vec<_>>();
        assert_eq!((import(), names()), (1, vec!["docker.io/library/a:1".to_owned()]));
        assert_eq!(import(), 0, "unchanged");
        // A changed archive, and one whose image was removed.
        fs::write(images.join("a.tar"), archive("a:22")).unwrap();
        assert_eq!((import(), names().len()), (1, 2));
        store.remove("a:22").unwrap();
        assert_eq!((import(), names().len()), (1, 2));
        assert_eq!(import(), 0);
        // Another store.
        let other = ImageStore::open(&dir.path().join("other")).unwrap().of_cluster(data_dir.root()).unwrap();
        assert_eq!(ImageArchives::new(&data_dir, other).import_all(&CancellationToken::new()), 1);
        let stop = CancellationToken::new();
        stop.cancel();
        assert_eq!(ImageArchives::new(&data_dir, store.clone()).import_all(&stop), 0);
    }
}
