//! Files that change all at once: readers see the old ones or the new ones, never some of each.
//!
//! The same layout as upstream's `AtomicWriter`: a directory of a version holds the files, the link `..data` leads to it,
//! and what users see are links through `..data`. Exchanging that one link exchanges everything.

use super::{
    give_to_group,
    payload::{File, Payload},
};
use crate::{os_error, untrusted_file};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

const DATA: &str = "..data";

/// Makes the directory, which is there, show exactly these files. When it does already, nothing is touched.
///
/// # Errors
/// What could not be done, to which path of the volume, and why.
pub(super) fn write(dir: &Path, payload: &Payload, group: Option<u32>) -> Result<(), String> {
    write_files(dir, payload, group).map_err(|error| os_error::words(&error))
}

fn write_files(dir: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    let old = fs::read_link(dir.join(DATA)).ok();
    if old.is_some() && shows(&dir.join(DATA), payload, group)? {
        return link(dir, payload);
    }
    let version = new_version(dir)?;
    if let Err(error) = fill(&dir.join(&version), payload, group) {
        let _ = fs::remove_dir_all(dir.join(&version));
        return Err(error);
    }
    let fresh = dir.join("..data_tmp");
    remove_file(&fresh)?;
    symlink(&version, &fresh)?;
    fs::rename(&fresh, dir.join(DATA))?;
    link(dir, payload)?;
    unlink_stale(dir, payload)?;
    match old {
        // Only a name, never a path: nothing outside of the volume can be removed here.
        Some(old) if old != version && old.components().count() == 1 => fs::remove_dir_all(dir.join(old)),
        _ => Ok(()),
    }
}

/// Whether a volume is there.
pub(super) fn is_set_up(dir: &Path) -> bool {
    fs::read_link(dir.join(DATA)).is_ok()
}

/// The name of a version that does not exist yet, and its directory.
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

fn fill(version: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    for (path, file) in &payload.files {
        let target = version.join(path);
        if let Some(parent) = target.parent() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(parent);
            // Whatever the kernel says of a parent that is a file.
            let refused = |error: io::Error| match error.kind() {
                io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
                _ => error,
            };
            made.map_err(|error| os_error::at("mkdir", path.parent().unwrap_or(path), &refused(error)))?;
        }
        let mut open = fs::OpenOptions::new();
        let out = open.write(true).create_new(true).mode(0o600).open(&target);
        let mut out = out.map_err(|error| os_error::at("open", path, &error))?;
        io::Write::write_all(&mut out, &file.content).map_err(|error| os_error::at("write", path, &error))?;
        let mode = mode(file, group);
        std::os::unix::fs::chown(&target, file.owner, None)?;
        give_to_group(&target, group)?;
        fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
    }
    open_dirs(version, group)
}

/// The Pod's `fsGroup` may read every file, and so may its owner (`roMask` of `changeFilePermission`).
fn mode(file: &File, group: Option<u32>) -> u32 {
    if group.is_some() { file.mode | 0o440 } else { file.mode }
}

/// Every user may enter directories, whatever the umask. They are the group's, too, and so is what is made in them
/// (`changeFilePermission`).
fn open_dirs(dir: &Path, group: Option<u32>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_dirs(&entry.path(), group)?;
        }
    }
    give_to_group(dir, group)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(if group.is_some() { 0o2755 } else { 0o755 }))
}

/// Whether a version holds exactly these files.
fn shows(version: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    collect(version, Path::new(""), &mut found)?;
    if found.len() != payload.files.len() {
        return Ok(false);
    }
    for (path, file) in &payload.files {
        if !found.contains(path) || !is_same(&version.join(path), file, group).unwrap_or(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A container may have replaced the file by a link or an enormous one: it is written again then.
fn is_same(path: &Path, expected: &File, group: Option<u32>) -> io::Result<bool> {
    let file = untrusted_file::open(path)?;
    let found = file.metadata()?.permissions().mode();
    Ok(found & 0o700 == mode(expected, group) & 0o700
        && untrusted_file::read_beginning(&file, expected.content.len() + 1)? == expected.content)
}

fn collect(root: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(root, &path, found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

/// The first parts of all paths: what users see in the volume.
fn visible(payload: &Payload) -> BTreeSet<OsString> {
    let first = |p: &PathBuf| match p.components().next() {
        Some(Component::Normal(name)) => Some(name.to_owned()),
        _ => None,
    };
    payload.files.keys().filter_map(first).collect()
}

fn link(dir: &Path, payload: &Payload) -> io::Result<()> {
    for name in visible(payload) {
        if fs::symlink_metadata(dir.join(&name)).is_err() {
            symlink(Path::new(DATA).join(&name), dir.join(&name))?;
        }
    }
    Ok(())
}

fn unlink_stale(dir: &Path, payload: &Payload) -> io::Result<()> {
    let shown = visible(payload);
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let ours = entry.file_type()?.is_symlink() && !entry.file_name().to_string_lossy().starts_with("..");
        if ours && !shown.contains(&entry.file_name()) {
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
            assert_eq!(crate::node_file::read_text(dir.join(path)).unwrap(), *content, "{path}");
        }
        let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let (hidden, shown): (Vec<_>, Vec<_>) = names.partition(|n| n.starts_with(".."));
        assert_eq!(hidden.len(), 2, "..data and one version: {hidden:?}");
        assert_eq!(shown.len(), visible(&payload(expected)).len(), "{shown:?}");
    }

    #[test]
    fn an_update_is_seen_whole_through_the_same_paths() {
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
    fn a_reader_with_an_open_directory_keeps_the_version_it_has_until_it_is_exchanged() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &payload(&[("a", "1")]), None).unwrap();
        let before = fs::read_link(dir.path().join(DATA)).unwrap();
        write(dir.path(), &payload(&[("a", "1")]), None).unwrap();
        assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), before, "nothing changed, so nothing is exchanged");
        write(dir.path(), &payload(&[("a", "2")]), None).unwrap();
        assert_ne!(fs::read_link(dir.path().join(DATA)).unwrap(), before);
        assert!(!dir.path().join(before).exists());
    }

    #[test]
    fn files_have_the_mode_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &payload(&[("a", "1")]), None).unwrap();
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().permissions().mode() & 0o7777, 0o640);
    }

    #[test]
    fn fs_group_may_read_files_whatever_their_mode() {
        let dir = tempfile::tempdir().unwrap();
        for (asked, without, with) in
            [(0, 0, 0o440), (0o400, 0o400, 0o440), (0o111, 0o111, 0o551), (0o600, 0o600, 0o640), (0o644, 0o644, 0o644)]
        {
            let mut payload = Payload::default();
            payload.add(Path::new("f"), asked, b"text".to_vec()).unwrap();
            for (group, expected) in [(None, without), (Some(4711), with)] {
                let volume = dir.path().join(format!("{asked}-{group:?}"));
                fs::create_dir(&volume).unwrap();
                write(&volume, &payload, group).unwrap();
                assert_eq!(
                    fs::metadata(volume.join("f")).unwrap().permissions().mode() & 0o7777,
                    expected,
                    "{asked:o}"
                );
                let version = fs::read_link(volume.join(DATA)).unwrap();
                write(&volume, &payload, group).unwrap();
                assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), version, "{asked:o}: nothing has changed");
            }
        }
    }

    #[test]
    fn paths_that_overlap_are_named_with_what_failed() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(dir.path(), &payload(&[("q/r", "a"), ("q/r/s", "b")]), None).unwrap_err();
        assert_eq!(error, "mkdir q/r: not a directory");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing of it stays");
    }
}
