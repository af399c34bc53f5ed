//! Removes what no name and no use refers to.

use crate::{
    Digest, Error,
    blobs::PARTIAL_PREFIX,
    error::Context,
    layers::remove_tree,
    lock::Lock,
    manifest::{chain_ids, diff_ids, digest_of, invalid_image},
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

/// What a collection removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Number of blobs.
    pub blobs: u64,
    /// Size of the blobs in bytes.
    pub blob_bytes: u64,
    /// Number of unpacked layers.
    pub layers: u64,
    /// Number of uses whose owner is gone.
    pub uses: u64,
}

/// What must be kept.
#[derive(Default)]
struct Live {
    blobs: HashSet<Digest>,
    layers: HashSet<Digest>,
}

impl ImageStore {
    /// Removes blobs and layers that no name and no use refers to, uses of owners whose directory is gone, and what killed
    /// processes left behind. Waits at most `wait` until no other process adds content.
    ///
    /// # Errors
    /// [`Error::Busy`] if other processes add content. If a name or a use cannot be read, nothing is removed.
    pub fn collect(&self, wait: Duration) -> Result<Collected, Error> {
        let lock = Lock::exclusive_within(&self.lock_path(), wait);
        let lock = lock.context(|| "failed to lock the image store".to_owned())?.ok_or(Error::Busy)?;
        let mut collected = Collected::default();
        let live = self.mark(&mut collected)?;
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

    /// Finds what names and uses refer to, and drops uses without an owner.
    fn mark(&self, collected: &mut Collected) -> Result<Live, Error> {
        let mut live = Live::default();
        for (_, path) in entries(&self.dir("names"))? {
            let Some(named) = self.read_name(&path)? else { continue };
            live.blobs.extend([named.target, named.manifest, named.id]);
            let content = self.manifest(&named.manifest)?;
            for descriptor in content.descriptors() {
                live.blobs.insert(digest_of(descriptor)?);
            }
            let diff_ids = diff_ids(&content.config).map_err(|problem| invalid_image(&named.id, problem))?;
            live.layers.extend(chain_ids(&diff_ids));
        }
        for (_, dir) in entries(&self.dir("uses"))? {
            for (_, path) in entries(&dir)? {
                let Some(in_use) = read_use(&path)? else {
                    remove_file(&path)?;
                    continue;
                };
                let failed = || format!("failed to read {}", in_use.owner.display());
                if none_if_missing(fs::symlink_metadata(&in_use.owner)).context(failed)?.is_none() {
                    remove_file(&path)?;
                    collected.uses += 1;
                    continue;
                }
                live.blobs.insert(in_use.image);
                live.layers.extend(in_use.layers);
            }
            // Another owner's directory is not empty.
            drop(fs::remove_dir(&dir));
        }
        Ok(live)
    }

    fn sweep_blobs(&self, live: &Live, collected: &mut Collected) -> Result<(), Error> {
        for (name, path) in entries(&self.dir("blobs/sha256"))? {
            if Digest::from_hex(&name).is_ok_and(|digest| live.blobs.contains(&digest)) {
                continue;
            }
            let size = fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
            remove_file(&path)?;
            collected.blobs += 1;
            collected.blob_bytes += size;
        }
        Ok(())
    }

    fn sweep_layers(&self, live: &Live, collected: &mut Collected) -> Result<(), Error> {
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

fn remove_file(path: &Path) -> Result<(), Error> {
    none_if_missing(fs::remove_file(path)).map(|_| ()).context(|| format!("failed to remove {}", path.display()))
}
