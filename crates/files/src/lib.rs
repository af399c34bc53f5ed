//! Private files and directories: mode 0600 and 0700, independent of the umask.
//!
//! Podium writes all its files with these functions, except those that containers read: volumes, logs and mounted files.
#![forbid(unsafe_code)]

pub mod mounts;
mod open;
mod read;
mod remove;
pub mod trust;

pub use open::{append_private, open_private};
pub use read::read_bounded;
pub use remove::{remove_dir_all, remove_entry};

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Permission bits of group and others.
const GROUP_AND_OTHERS: u32 = 0o077;

/// Returns a builder of directories with mode 0700.
#[must_use]
pub fn private_dir_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Creates a directory and its missing parents with mode 0700. Removes the permissions of others from an existing directory.
///
/// # Errors
/// If it cannot be created, or is not a directory.
pub fn create_private_dir_all(dir: &Path) -> io::Result<()> {
    private_dir_builder().recursive(true).create(dir)?;
    let metadata = fs::symlink_metadata(dir)?;
    if metadata.is_dir() && metadata.mode() & GROUP_AND_OTHERS != 0 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Creates a directory and its missing parents with this mode, independent of the umask. Existing parents keep their mode.
///
/// # Errors
/// If a directory cannot be created.
pub fn create_dir_all_with_mode(dir: &Path, mode: u32) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().skip(1).take_while(|parent| is_missing(parent)).collect();
    fs::create_dir_all(dir)?;
    missing.into_iter().chain([dir]).try_for_each(|dir| fs::set_permissions(dir, Permissions::from_mode(mode)))
}

fn is_missing(path: &Path) -> bool {
    !path.as_os_str().is_empty() && fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Creates an empty file with mode 0600. Replaces an existing file or link.
///
/// # Errors
/// If the existing file cannot be removed, or the file cannot be created.
pub fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)
}

/// Writes a file with mode 0600 atomically and durably. Replaces an existing file or link.
///
/// # Errors
/// If it cannot be written.
pub fn replace_private(path: &Path, data: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    write_temporary(&temporary, data)?.sync_data()?;
    fs::rename(&temporary, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Writes a file with mode 0600 atomically. It survives the death of this process, but not a power failure, which may leave
/// the earlier file, none, or the beginning of this one. Replaces an existing file or link.
///
/// # Errors
/// If it cannot be written.
pub fn replace_private_unsynced(path: &Path, data: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    write_temporary(&temporary, data)?;
    fs::rename(&temporary, path)
}

fn write_temporary(path: &Path, data: &[u8]) -> io::Result<File> {
    // The administrator may choose a directory in which other users can create links.
    let mut file = create_private(path)?;
    file.write_all(data)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn new_and_existing_directories_become_private() {
        let dir = tempfile::tempdir().unwrap();
        let (above, below) = (dir.path().join("a"), dir.path().join("a/b"));
        create_private_dir_all(&below).unwrap();
        assert_eq!((mode(&above), mode(&below)), (0o700, 0o700));
        fs::set_permissions(&below, Permissions::from_mode(0o755)).unwrap();
        create_private_dir_all(&below).unwrap();
        assert_eq!(mode(&below), 0o700);
        fs::write(dir.path().join("f"), "").unwrap();
        create_private_dir_all(&dir.path().join("f")).unwrap_err();
    }

    #[test]
    fn only_missing_parents_get_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (top, above, below) = (dir.path().join("a"), dir.path().join("a/b"), dir.path().join("a/b/c"));
        create_private_dir_all(&top).unwrap();
        create_dir_all_with_mode(&below, 0o1755).unwrap();
        assert_eq!((mode(&top), mode(&above), mode(&below)), (0o700, 0o1755, 0o1755));
        create_dir_all_with_mode(&below, 0o711).unwrap();
        assert_eq!((mode(&above), mode(&below)), (0o1755, 0o711));
    }

    #[test]
    fn files_are_private_and_replace_links() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("f.json"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        for link in [&path, &path.with_extension("new")] {
            symlink(&victim, link).unwrap();
        }
        replace_private_unsynced(&path, b"text").unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "text"));
        assert!(!path.with_extension("new").exists());
        // An existing file that others can read.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        replace_private(&path, b"more").unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "more"));
        symlink(&victim, dir.path().join("log")).unwrap();
        create_private(&dir.path().join("log")).unwrap();
        assert_eq!(mode(&dir.path().join("log")), 0o600);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }
}
