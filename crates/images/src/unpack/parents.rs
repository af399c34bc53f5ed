//! Lookups in the layers below, as overlayfs merges them.

use super::tree::{Tree, file_type, is_opaque, is_whiteout, open_dir, stat};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FileType, Stat},
};
use std::io;

/// The layers below the one that is unpacked, the top one first.
#[derive(Debug)]
pub(super) struct Parents(Vec<Tree>);

/// A name of a lower layer.
pub(super) struct Lower {
    /// Its directory.
    pub(super) dir: OwnedFd,
    /// Its attributes.
    pub(super) stat: Stat,
}

impl Parents {
    pub(super) fn new(layers: Vec<Tree>) -> Self {
        Self(layers)
    }

    /// Returns the root directory of the layer below.
    pub(super) fn root(&self) -> Option<&Tree> {
        self.0.first()
    }

    /// Finds what a path without symbolic links names in the merged layers.
    pub(super) fn find(&self, names: &[impl AsRef<[u8]>]) -> io::Result<Option<Lower>> {
        let Some((last, above)) = names.split_last() else { return Ok(None) };
        'layers: for layer in &self.0 {
            let mut dir = layer.open_dir(b"")?;
            let mut is_hidden_below = is_opaque(&dir)?;
            for name in above {
                match stat(&dir, name.as_ref())? {
                    None if is_hidden_below => return Ok(None),
                    None => continue 'layers,
                    Some(stat) if file_type(&stat) == FileType::Directory => dir = open_dir(&dir, name.as_ref())?,
                    // A whiteout, a file or a link hides everything below.
                    Some(_) => return Ok(None),
                }
                is_hidden_below |= is_opaque(&dir)?;
            }
            match stat(&dir, last.as_ref())? {
                Some(stat) if is_whiteout(&stat) => return Ok(None),
                Some(stat) => return Ok(Some(Lower { dir, stat })),
                None if is_hidden_below => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }
}

impl Lower {
    /// Opens the directory that was found.
    pub(super) fn open_dir(&self, name: &[u8]) -> io::Result<OwnedFd> {
        Ok(open_dir(self.dir.as_fd(), name)?)
    }
}
