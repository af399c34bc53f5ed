//! Check that fjall's files are complete: fjall recreates missing files, and would overwrite the remaining ones.
//!
//! ```text
//! N.jnl                   journals, at least one
//! keyspaces/N/current     version of its tables: a u64, little endian, and a checksum
//! keyspaces/N/vM          that version
//! ```

use crate::OpenError;
use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

/// fjall's internal keyspace and the store's: both exist before the database is renamed to its final name.
const KEYSPACES: [&str; 2] = ["0", "1"];

pub(super) fn check(database: &Path) -> Result<(), OpenError> {
    let journals = fs::read_dir(database)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>())
        .map_err(OpenError::io(database))?;
    if !journals.iter().any(|path| path.extension().is_some_and(|extension| extension == "jnl")) {
        return Err(OpenError::damaged(database, "it has no journal"));
    }
    KEYSPACES.iter().try_for_each(|name| check_keyspace(&database.join("keyspaces").join(name)))
}

fn check_keyspace(keyspace: &Path) -> Result<(), OpenError> {
    let current = keyspace.join("current");
    let text = match fs::read(&current) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(OpenError::damaged(current, "it is missing")),
        text => text.map_err(OpenError::io(&current))?,
    };
    let Some((version, _)) = text.split_first_chunk() else {
        return Err(OpenError::damaged(current, "it is too short"));
    };
    let version = keyspace.join(format!("v{}", u64::from_le_bytes(*version)));
    if version.is_file() { Ok(()) } else { Err(OpenError::damaged(version, "it is missing")) }
}
