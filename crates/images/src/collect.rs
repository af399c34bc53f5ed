//! Removes what no name and no use refers to.

use crate::{
    Digest, Error,
    blobs::PARTIAL_PREFIX,
    error::Context,
    layers::remove_tree,
    lock::Lock,
    manifest::{MAX_DOCUMENT, chain_ids, diff_ids, digest_of, invalid_image},
    names::NamedImage,
    store::{ImageStore, entries, none_if_missing},
    uses::read_use,
};
use std::{
    collections::HashSet,
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    path::Path,
    time::Duration,
};

/// Time for which an interrupted download is kept, so that it can be resumed: the kubelet retries at least every 5 minutes.
const PARTIAL_BLOB_RETENTION: Duration = Duration::from_secs(3600);

/// Maximum number of problems that a collection reports.
const MAX_PROBLEMS: usize = 100;

/// What a collection removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// Number of blobs.
    pub blobs: u64,
    /// Size of the blobs in bytes.
    pub blob_bytes: u64,
    /// Number of unpacked layers.
    pub layers: u64,
    /// Number of uses whose owner is gone.
    pub uses: u64,
    /// Damaged files, and files that are not understood, with their consequences; the first 100.
    pub problems: Vec<String>,
}

impl Collected {
    fn problem(&mut self, error: &Error, consequence: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("{error}: {consequence}"));
        }
    }
}

/// What must be kept.
#[derive(Default)]
struct Live {
    blobs: HashSet<Digest>,
    layers: HashSet<Digest>,
    /// Image IDs of names.
    images: HashSet<Digest>,
    /// There are names that cannot be understood: anything may be theirs.
    has_unknown_names: bool,
    /// There are uses that cannot be understood: any layer and any configuration may be theirs.
    has_unknown_uses: bool,
}

impl ImageStore {
    /// Removes blobs and layers that no name and no use refers to, uses of owners whose directory is gone, and what killed
    /// processes left behind. Waits at most `wait` until no other process adds content.
    ///
    /// Damage is reported, and does not make other content uncollectable: a damaged image keeps what its name refers to. Content
    /// of names and uses that are not understood, for example of a newer version, is kept.
    ///
    /// # Errors
    /// [`Error::Busy`] if other processes add content, or if the store cannot be read or written.
    pub fn collect(&self, wait: Duration) -> Result<Collected, Error> {
        let lock = Lock::exclusive_within(&self.lock_path(), wait);
        let lock = lock.context(|| "failed to lock the image store".to_owned())?.ok_or(Error::Busy)?;
        let mut collected = Collected::default();
        let mut live = Live::default();
        self.mark_names(&mut live, &mut collected)?;
        self.mark_uses(&mut live, &mut collected)?;
        self.sweep_clusters((!live.has_unknown_names).then_some(&live.images))?;
        self.sweep_blobs(&live, &mut collected)?;
        self.sweep_layers(&live, &mut collected)?;
        self.sweep_ingest()?;
        // Others may go on while the removed directories are deleted.
        drop(lock);
        for (_, path) in entries(&self.dir("trash"))? {
            remove_tree(&path).context(|| format!("failed to remove {}", path.display()))?;
        }
        Ok(collected)
    }

    /// Finds what names refer to.
    fn mark_names(&self, live: &mut Live, collected: &mut Collected) -> Result<(), Error> {
        for (_, path) in entries(&self.dir("names"))? {
            match self.read_name(&path) {
                Ok(None) => {}
                Ok(Some(named)) => self.mark_image(&named, live, collected),
                // Files are replaced atomically: nobody can find an image by this name any more.
                Err(error) if is_no_json(&error) => collected.problem(&error, "the image has lost this name"),
                Err(error) => {
                    live.has_unknown_names = true;
                    collected.problem(&error, "all content is kept");
                }
            }
        }
        Ok(())
    }

    fn mark_image(&self, named: &NamedImage, live: &mut Live, collected: &mut Collected) {
        live.images.insert(named.id);
        live.blobs.extend([named.target, named.manifest, named.id]);
        live.blobs.extend(&named.blobs);
        live.layers.extend(&named.layers);
        if let Err(error) = self.mark_manifest(named, live) {
            let consequence = format!("image {} is damaged, pull or import it again", named.name);
            collected.problem(&error, &consequence);
            // The name of an earlier version does not list the layers.
            let diff_ids = self.config(&named.id).ok().and_then(|config| diff_ids(&config).ok());
            live.layers.extend(chain_ids(&diff_ids.unwrap_or_default()));
        }
    }

    fn mark_manifest(&self, named: &NamedImage, live: &mut Live) -> Result<(), Error> {
        let content = self.manifest(&named.manifest)?;
        for descriptor in content.descriptors() {
            live.blobs.insert(digest_of(descriptor)?);
        }
        let diff_ids = diff_ids(&content.config).map_err(|problem| invalid_image(&named.id, problem))?;
        live.layers.extend(chain_ids(&diff_ids));
        Ok(())
    }

    /// Finds what uses refer to, and drops those without an owner.
    fn mark_uses(&self, live: &mut Live, collected: &mut Collected) -> Result<(), Error> {
        for (key, dir) in entries(&self.dir("uses"))? {
            for (_, path) in entries(&dir)? {
                let (in_use, owner_exists) = match read_use(&path) {
                    Ok(None) => continue,
                    Ok(Some(in_use)) => {
                        let failed = || format!("failed to read {}", in_use.owner.display());
                        let owner = none_if_missing(fs::symlink_metadata(&in_use.owner)).context(failed)?;
                        (Ok(in_use), owner.is_some())
                    }
                    Err(error) => {
                        let is_use = self.may_be_use(&key, &error);
                        (Err(error), is_use)
                    }
                };
                if !owner_exists {
                    remove_file(&path)?;
                    collected.uses += 1;
                    continue;
                }
                match in_use {
                    Ok(in_use) => {
                        live.blobs.insert(in_use.image);
                        live.layers.extend(in_use.layers);
                    }
                    Err(error) => {
                        live.has_unknown_uses = true;
                        collected.problem(&error, "all unpacked layers are kept, a container may use them");
                    }
                }
            }
            // Another owner's directory is not empty.
            drop(fs::remove_dir(&dir));
        }
        Ok(())
    }

    fn sweep_blobs(&self, live: &Live, collected: &mut Collected) -> Result<(), Error> {
        if live.has_unknown_names {
            return Ok(());
        }
        for (name, path) in entries(&self.dir("blobs/sha256"))? {
            if Digest::from_hex(&name).is_ok_and(|digest| live.blobs.contains(&digest)) {
                continue;
            }
            let size = fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
            if live.has_unknown_uses && size <= MAX_DOCUMENT {
                continue;
            }
            remove_file(&path)?;
            collected.blobs += 1;
            collected.blob_bytes += size;
        }
        Ok(())
    }

    fn sweep_layers(&self, live: &Live, collected: &mut Collected) -> Result<(), Error> {
        if live.has_unknown_names || live.has_unknown_uses {
            return Ok(());
        }
        for (name, path) in entries(&self.dir("layers"))? {
            if !Digest::from_hex(&name).is_ok_and(|chain_id| live.layers.contains(&chain_id)) {
                self.discard(&path)?;
                collected.layers += 1;
            }
        }
        Ok(())
    }

    /// Removes what killed processes left: nobody else has the store's lock.
    fn sweep_ingest(&self) -> Result<(), Error> {
        for (name, path) in entries(&self.dir("ingest"))? {
            let failed = || format!("failed to read {}", path.display());
            let metadata = fs::symlink_metadata(&path).context(failed)?;
            let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
            if metadata.is_dir() {
                self.discard(&path)?;
            } else if !name.starts_with(PARTIAL_PREFIX) || age > PARTIAL_BLOB_RETENTION {
                remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Moves a directory to the trash at once.
    fn discard(&self, path: &Path) -> Result<(), Error> {
        let name = format!("{:016x}", RandomState::new().build_hasher().finish());
        fs::rename(path, self.dir("trash").join(name)).context(|| format!("failed to remove {}", path.display()))
    }
}

/// Returns whether the error is that of a file which is not JSON: damaged, and not of a newer version.
pub(crate) fn is_no_json(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.get_ref().and_then(|error| error.downcast_ref::<serde_json::Error>())
        .is_some_and(|error| error.is_syntax() || error.is_eof()))
}

pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    none_if_missing(fs::remove_file(path)).map(|_| ()).context(|| format!("failed to remove {}", path.display()))
}
