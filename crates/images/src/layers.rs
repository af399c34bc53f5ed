//! Unpacked layers. Each is unpacked once, for all images that have it above the same layers.
//!
//! The configuration of an image says which layers its blobs are. It is not trusted: an image that names the layers of another
//! one gets them only with their content. The blobs that were verified are recorded beside the layer.

use crate::{
    Digest, Error, Lease,
    decompress::decompress,
    error::{Context, invalid},
    lock::Lock,
    manifest::{ImageContent, chain_ids, diff_ids, digest_of, invalid_image},
    store::{ImageStore, sync_dir},
    unpack::{Limits, MAX_BYTES, Measured, Tree, is_opaque, unpack},
};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Begin of the names of unfinished layers in `ingest`.
pub(crate) const LAYER_PREFIX: &str = "layer-";

impl ImageStore {
    /// Returns the directory of an unpacked layer.
    pub(crate) fn layer_path(&self, chain_id: &Digest) -> PathBuf {
        self.dir("layers").join(chain_id.hex())
    }

    /// Returns the lower directories of unpacked layers, the top one first.
    pub(crate) fn lower_dirs(&self, chain: &[Digest]) -> Result<Vec<PathBuf>, Error> {
        let mut dirs = Vec::with_capacity(chain.len().max(1));
        for chain_id in chain.iter().rev() {
            let dir = self.layer_path(chain_id).join("fs");
            let opened = File::open(&dir).context(|| format!("failed to open layer {chain_id}"))?;
            dirs.push(dir);
            // overlayfs ignores the attribute of the root directory of a layer.
            if is_opaque(&opened).context(|| format!("failed to read layer {chain_id}"))? {
                break;
            }
        }
        if dirs.is_empty() {
            dirs.push(self.dir("empty"));
        }
        Ok(dirs)
    }
}

impl Lease {
    /// Unpacks the layers of an image that are not unpacked yet. Blocks while another process unpacks one of them.
    ///
    /// # Errors
    /// If a layer is missing, malformed, or not the one that the configuration names.
    pub fn unpack(&self, manifest: &Digest) -> Result<(), Error> {
        let content = self.store.manifest(manifest)?;
        self.unpack_content(&content)
    }

    pub(crate) fn unpack_content(&self, content: &ImageContent) -> Result<(), Error> {
        let diff_ids = diff_ids(&content.config).map_err(|problem| invalid_image(&content.id, problem))?;
        let chain = chain_ids(&diff_ids);
        for (at, (layer, diff_id)) in content.manifest.layers().iter().zip(&diff_ids).enumerate() {
            let blob = digest_of(layer)?;
            self.unpack_layer(&blob, diff_id, &chain[..=at])?;
        }
        Ok(())
    }

    /// Unpacks one layer. `chain` ends with its own ID.
    fn unpack_layer(&self, blob: &Digest, diff_id: &Digest, chain: &[Digest]) -> Result<(), Error> {
        let Some((chain_id, below)) = chain.split_last() else { return Ok(()) };
        let target = self.store.layer_path(chain_id);
        let unfinished = self.store.dir("ingest").join(format!("{LAYER_PREFIX}{}", chain_id.hex()));
        let failed = |verb: &str| format!("failed to {verb} layer {chain_id}");
        if target.try_exists().context(|| failed("open"))? {
            return self.verify(&target, blob, diff_id);
        }
        let _lock = Lock::exclusive(&unfinished.with_extension("lock")).context(|| failed("lock"))?;
        if target.try_exists().context(|| failed("open"))? {
            return self.verify(&target, blob, diff_id);
        }
        remove_tree(&unfinished).context(|| failed("remove the unfinished"))?;
        let result = self.unpack_into(&unfinished, blob, diff_id, below);
        if let Err(error) = result {
            // The error of the layer is what matters; collection removes the rest otherwise.
            if let Err(error) = remove_tree(&unfinished) {
                tracing::warn!(%error, "failed to remove an unfinished layer");
            }
            return Err(error);
        }
        fs::rename(&unfinished, &target).context(|| failed("rename"))?;
        sync_dir(&self.store.dir("layers")).context(|| failed("rename"))
    }

    /// Verifies that a blob is a layer that was unpacked from another blob.
    fn verify(&self, layer: &Path, blob: &Digest, diff_id: &Digest) -> Result<(), Error> {
        let verified = verified_file(layer, blob);
        // A blob that is not compressed has the digest of its content.
        if blob == diff_id || verified.try_exists().context(|| format!("failed to open layer {diff_id}"))? {
            return Ok(());
        }
        let unpack_error = |source| Error::Unpack { diff_id: *diff_id, source };
        let archive = decompress(self.store.open_blob(blob)?).map_err(unpack_error)?;
        let mut content = Measured::new(archive, MAX_BYTES);
        io::copy(&mut content, &mut io::sink()).map_err(unpack_error)?;
        check_digest(&content.finish(), diff_id)?;
        match files::create_private(&verified) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(unpack_error(error)),
            _ => Ok(()),
        }
    }

    fn unpack_into(&self, unfinished: &Path, blob: &Digest, diff_id: &Digest, below: &[Digest]) -> Result<(), Error> {
        let failed = || format!("failed to create layer {diff_id}");
        let root = unfinished.join("fs");
        files::create_private_dir_all(&root).context(failed)?;
        let open = |dir: &PathBuf| Tree::open(dir).context(failed);
        let parents = if below.is_empty() { Vec::new() } else { self.store.lower_dirs(below)? };
        let parents = parents.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let limits = Limits::of(unfinished).context(failed)?;
        let archive = self.store.open_blob(blob)?;
        let unpack_error = |source| Error::Unpack { diff_id: *diff_id, source };
        let found = unpack(archive, open(&root)?, parents, &limits).map_err(unpack_error)?;
        check_digest(&found, diff_id)?;
        files::create_private(&verified_file(unfinished, blob)).context(failed)?;
        // One call for all files of the layer; a call for each file takes many times as long.
        let root = File::open(&root).context(failed)?;
        rustix::fs::syncfs(&root).context(failed)
    }
}

/// File that says that a blob is this layer.
fn verified_file(layer: &Path, blob: &Digest) -> PathBuf {
    layer.join(format!("blob-{}", blob.hex()))
}

fn check_digest(found: &Digest, diff_id: &Digest) -> Result<(), Error> {
    if found == diff_id {
        return Ok(());
    }
    let source = invalid(format!("the digest of the uncompressed layer is {found}"));
    Err(Error::Unpack { diff_id: *diff_id, source })
}

/// Removes a directory with all that is below it, if it exists.
pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    crate::store::none_if_missing(fs::remove_dir_all(path)).map(|_| ())
}
