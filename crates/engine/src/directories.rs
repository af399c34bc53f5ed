//! Directories of sandboxes and containers: lists, and removal that an interruption does not leave half done.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Prefix of directories that are being removed.
const REMOVED: &str = ".removed-";

/// Removes the subdirectories whose removal was interrupted. In a task: a container may have left millions of files, and the
/// start does not wait for them.
pub(crate) fn complete_removals(dir: &Path) {
    let is_removed = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(REMOVED);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(is_removed) {
        tokio::task::spawn_blocking(move || {
            if let Err(error) = files::remove_dir_all(&entry.path()) {
                tracing::warn!(path = %entry.path().display(), %error, "failed to complete a removal");
            }
        });
    }
}

/// Returns the subdirectories by name, without those whose removal was interrupted.
pub(crate) fn subdirectories(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(REMOVED) && entry.file_type()?.is_dir() {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

/// Removes a directory. Its record goes first with a rename, so that an interrupted removal leaves no half of an object.
pub(crate) fn remove_dir(dir: &Path) -> io::Result<()> {
    let Some(name) = dir.file_name() else { return Ok(()) };
    let removed = dir.with_file_name(format!("{REMOVED}{}", name.to_string_lossy()));
    match fs::rename(dir, &removed) {
        // A removal that failed may be repeated.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed?,
    }
    match files::remove_dir_all(&removed) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
