//! Atomic updates of volume files: readers see all old files or all new files.
//!
//! The layout is that of upstream's `AtomicWriter`: a timestamped directory has the files, the symbolic link `..data` points
//! to it, and user-visible files are links through `..data`. Replacing that link updates all files at once.

use super::{
    payload::{FileProjection, Payload},
    set_group,
};
use crate::{
    os_error::{self, PathError},
    untrusted_file,
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

const DATA: &str = "..data";

/// Failure to write the files of a volume, with the call, the path within the volume, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{}", os_error::message(.0))]
pub(super) struct WriteError(#[source] io::Error);

/// Writes exactly these files to an existing directory, unless they are up to date.
pub(super) fn write(dir: &Path, payload: &Payload, group: Option<u32>) -> Result<(), WriteError> {
    write_files(dir, payload, group).map_err(WriteError)
}

fn write_files(dir: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    let old = fs::read_link(dir.join(DATA)).ok();
    if old.is_some() && is_up_to_date(&dir.join(DATA), payload, group)? {
        return create_user_visible_links(dir, payload);
    }
    let version = new_version(dir)?;
    if let Err(error) = write_version(&dir.join(&version), payload, group) {
        let _ = fs::remove_dir_all(dir.join(&version));
        return Err(error);
    }
    let new_link = dir.join("..data_tmp");
    remove_file(&new_link)?;
    symlink(&version, &new_link)?;
    fs::rename(&new_link, dir.join(DATA))?;
    create_user_visible_links(dir, payload)?;
    remove_stale_links(dir, payload)?;
    match old {
        // A single name, not a path: nothing outside the volume can be removed.
        Some(old) if old != version && old.components().count() == 1 => fs::remove_dir_all(dir.join(old)),
        _ => Ok(()),
    }
}

/// Returns whether a volume has been written.
pub(super) fn is_set_up(dir: &Path) -> bool {
    fs::read_link(dir.join(DATA)).is_ok()
}

/// Creates a new timestamped directory and returns its name.
fn new_version(dir: &Path) -> io::Result<PathBuf> {
    let now = jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S").to_string();
    for n in 0..1000 {
        let name = PathBuf::from(format!("..{now}.{n}"));
        match fs::DirBuilder::new().mode(0o755).create(dir.join(&name)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
            Ok(()) => {
                fs::set_permissions(dir.join(&name), fs::Permissions::from_mode(0o755))?;
                return Ok(name);
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many versions of this volume"))
}

fn write_version(version: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    for (path, file) in &payload.files {
        let target = version.join(path);
        if let Some(parent) = target.parent() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(parent);
            // The kernel's error for a parent that is a file.
            let parent_error = |error: io::Error| match error.kind() {
                io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
                _ => error,
            };
            made.map_err(|error| PathError::new("mkdir", path.parent().unwrap_or(path), parent_error(error)))?;
        }
        let mut open = fs::OpenOptions::new();
        let out = open.write(true).create_new(true).mode(0o600).open(&target);
        let mut out = out.map_err(|error| PathError::new("open", path, error))?;
        io::Write::write_all(&mut out, &file.content).map_err(|error| PathError::new("write", path, error))?;
        let mode = mode(file, group);
        std::os::unix::fs::chown(&target, file.owner, None)?;
        set_group(&target, group)?;
        fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
    }
    set_dir_permissions(version, group)
}

/// Returns the file's mode. With `fsGroup`, owner and group may read it (`roMask` of `changeFilePermission`).
fn mode(file: &FileProjection, group: Option<u32>) -> u32 {
    if group.is_some() { file.mode | 0o440 } else { file.mode }
}

/// Makes directories accessible to all users, independent of the umask, and sets their group, which new files inherit
/// (`changeFilePermission`).
fn set_dir_permissions(dir: &Path, group: Option<u32>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            set_dir_permissions(&entry.path(), group)?;
        }
    }
    set_group(dir, group)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(if group.is_some() { 0o2755 } else { 0o755 }))
}

/// Returns whether a version has exactly these files.
fn is_up_to_date(version: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    collect_files(version, Path::new(""), &mut found)?;
    if found.len() != payload.files.len() {
        return Ok(false);
    }
    for (path, file) in &payload.files {
        if !found.contains(path) || !file_matches(&version.join(path), file, group).unwrap_or(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares a file. A container may have replaced it with a link or a huge file, which is then rewritten.
fn file_matches(path: &Path, expected: &FileProjection, group: Option<u32>) -> io::Result<bool> {
    let file = untrusted_file::open(path)?;
    let found = file.metadata()?.permissions().mode();
    Ok(found & 0o700 == mode(expected, group) & 0o700
        && untrusted_file::read_beginning(&file, expected.content.len() + 1)? == expected.content)
}

fn collect_files(root: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect_files(root, &path, found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

/// Returns the user-visible names in the volume: the first components of all paths.
fn user_visible_names(payload: &Payload) -> BTreeSet<OsString> {
    let first = |p: &PathBuf| match p.components().next() {
        Some(Component::Normal(name)) => Some(name.to_owned()),
        _ => None,
    };
    payload.files.keys().filter_map(first).collect()
}

fn create_user_visible_links(dir: &Path, payload: &Payload) -> io::Result<()> {
    for name in user_visible_names(payload) {
        if fs::symlink_metadata(dir.join(&name)).is_err() {
            symlink(Path::new(DATA).join(&name), dir.join(&name))?;
        }
    }
    Ok(())
}

fn remove_stale_links(dir: &Path, payload: &Payload) -> io::Result<()> {
    let shown = user_visible_names(payload);
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_own_link = entry.file_type()?.is_symlink() && !entry.file_name().to_string_lossy().starts_with("..");
        if is_own_link && !shown.contains(&entry.file_name()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let mut payload = Payload::default();
        for (path, content) in files {
            payload.add(Path::new(path), 0o640, content.as_bytes().to_vec()).unwrap();
        }
        payload
    }

    #[track_caller]
    fn check(dir: &Path, expected: &[(&str, &str)]) {
        for (path, content) in expected {
            assert_eq!(crate::host_file::read_text(dir.join(path)).unwrap(), *content, "{path}");
        }
        let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let (hidden, shown): (Vec<_>, Vec<_>) = names.partition(|n| n.starts_with(".."));
        assert_eq!(hidden.len(), 2, "..data and one version: {hidden:?}");
        assert_eq!(shown.len(), user_visible_names(&payload(expected)).len(), "{shown:?}");
    }

    #[test]
    fn update_replaces_all_files_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for files in [
            &[("a/b", "one"), ("c", "1")][..],
            &[("a/b", "two"), ("c", "2")],
            &[("a/d", "three")],
            &[("a", "a file where a directory was")],
            &[],
        ] {
            write(dir.path(), &payload(files), None).unwrap();
            check(dir.path(), files);
        }
    }

    #[test]
    fn unchanged_files_are_not_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &payload(&[("a", "1")]), None).unwrap();
        let before = fs::read_link(dir.path().join(DATA)).unwrap();
        write(dir.path(), &payload(&[("a", "1")]), None).unwrap();
        assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), before, "unchanged files are not rewritten");
        write(dir.path(), &payload(&[("a", "2")]), None).unwrap();
        assert_ne!(fs::read_link(dir.path().join(DATA)).unwrap(), before);
        assert!(!dir.path().join(before).exists());
    }

    #[test]
    fn files_have_the_requested_mode() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &payload(&[("a", "1")]), None).unwrap();
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().permissions().mode() & 0o7777, 0o640);
    }

    #[test]
    fn fs_group_may_read_files_of_any_mode() {
        let dir = tempfile::tempdir().unwrap();
        for (requested, without, with) in
            [(0, 0, 0o440), (0o400, 0o400, 0o440), (0o111, 0o111, 0o551), (0o600, 0o600, 0o640), (0o644, 0o644, 0o644)]
        {
            let mut payload = Payload::default();
            payload.add(Path::new("f"), requested, b"text".to_vec()).unwrap();
            for (group, expected) in [(None, without), (Some(4711), with)] {
                let volume = dir.path().join(format!("{requested}-{group:?}"));
                fs::create_dir(&volume).unwrap();
                write(&volume, &payload, group).unwrap();
                assert_eq!(
                    fs::metadata(volume.join("f")).unwrap().permissions().mode() & 0o7777,
                    expected,
                    "{requested:o}"
                );
                let version = fs::read_link(volume.join(DATA)).unwrap();
                write(&volume, &payload, group).unwrap();
                assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), version, "{requested:o}: unchanged");
            }
        }
    }

    #[test]
    fn overlapping_paths_fail_with_path_and_cause() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(dir.path(), &payload(&[("q/r", "a"), ("q/r/s", "b")]), None).unwrap_err();
        assert_eq!(error.to_string(), "mkdir q/r: not a directory");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the failed version is removed");
    }
}
