//! Compaction: copies the current objects to a new database, and removes the old one with all replaced values.
//!
//! fjall keeps replaced values in journals and tables until it happens to merge them, which may be never. A copy
//! contains current values only.
//!
//! ```text
//! database.new  filled, synced, closed
//! database.new <-> database, atomically (RENAME_EXCHANGE), and the directory is synced
//! database      opened, and compared with the acknowledged head
//! database.new  removed (the old database), and torn/, too
//! ```
//!
//! A crash in between leaves `database` complete, old or new, and a `database.new` that the next opening removes.

use super::{
    FjallOptions, Open,
    codec::{self, HEAD_KEY},
    directory::{Directory, remove_tree, sync_directory},
    open,
};
use crate::{CommitError, Head, OpenError};
use fjall::PersistMode;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::path::Path;

/// Size of one batch of the copy, in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Copies the current objects of a database to a new one beside it.
pub(super) fn copy(
    database: &Open,
    head: &Head,
    directory: &Directory,
    options: &FjallOptions,
) -> Result<(), CommitError> {
    let path = directory.new_database();
    remove_tree(&path).map_err(CommitError::Write)?;
    let new = open(&path, options).map_err(|error| CommitError::Reopen(Box::new(error)))?;
    fill(&new, database, head).map_err(|error| CommitError::Write(super::io_error(error)))
}

fn fill(new: &Open, database: &Open, head: &Head) -> Result<(), fjall::Error> {
    let begin = || new.database.batch().durability(Some(PersistMode::SyncData));
    let (mut write, mut bytes) = (begin(), 0);
    for entry in database.objects.iter() {
        let (key, value) = entry.into_inner()?;
        // Written last: a copy without the head is incomplete.
        if *key == *HEAD_KEY {
            continue;
        }
        bytes += key.len() + value.len();
        write.insert(&new.objects, key, value);
        if bytes >= BATCH_BYTES {
            std::mem::replace(&mut write, begin()).commit()?;
            bytes = 0;
        }
    }
    write.insert(&new.objects, HEAD_KEY, codec::encode_head(head).as_slice());
    write.commit()
}

/// Exchanges the database with its copy. Neither may be open.
pub(super) fn exchange(directory: &Directory) -> Result<(), OpenError> {
    let (old, new) = (directory.database(), directory.new_database());
    renameat2(AT_FDCWD, &old, AT_FDCWD, &new, RenameFlags::RENAME_EXCHANGE)
        .map_err(|error| OpenError::io(&old)(error.into()))?;
    sync_directory(directory.path()).map_err(OpenError::io(directory.path()))
}

/// Removes the replaced database and copies of torn journals.
pub(super) fn remove_replaced(directory: &Directory) -> Result<(), CommitError> {
    let remove = |path: &Path| remove_tree(path).map_err(CommitError::Write);
    remove(&directory.new_database())?;
    remove(&directory.torn())
}
