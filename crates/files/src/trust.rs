//! Path resolution that trusts only the caller and root.
//!
//! A data directory contains the CA key, and Podium, as root, removes files in it. So no other user may be able to replace
//! the directory, one of its parents, or a symbolic link in its path. Every component is checked from `/` down. After
//! that, no other user can change the meaning of the resolved path, so other programs may use it.

use nix::unistd::{Uid, User, geteuid};
use std::{
    ffi::OsString,
    fs::{self, Metadata},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};

/// Maximum number of symbolic links in a path, as in Linux (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Resolves a path to an absolute path without symbolic links. The last components may not exist.
///
/// # Errors
/// If a user other than the caller and root could replace a component of the path.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut pending: Vec<OsString> = Vec::new();
    push(&mut pending, &std::path::absolute(path)?);
    let mut found = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = pending.pop() {
        let next = match Path::new(&name).components().next() {
            Some(Component::Normal(name)) => found.join(name),
            Some(Component::ParentDir) => {
                found.pop();
                continue;
            }
            Some(Component::RootDir) => PathBuf::from("/"),
            _ => continue,
        };
        let metadata = match fs::symlink_metadata(&next) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return resolve_missing(next, pending),
            Err(error) => return Err(error),
        };
        if metadata.is_symlink() {
            links += 1;
            check_link(&next, &metadata, &found, links)?;
            push(&mut pending, &fs::read_link(&next)?);
            continue;
        }
        check_parent(&next, &metadata)?;
        found = next;
    }
    Ok(found)
}

/// Checks that a directory belongs to the caller or root, and that no other user may write to it.
///
/// # Errors
/// If it is not a directory, or another user owns it or may write to it.
pub fn check_private(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if !metadata.is_dir() {
        return Err(not_a_directory(path));
    }
    check_owner(path, metadata)?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(not_safe(path, metadata, "others than its owner may write to it; chmod go-w it"));
    }
    Ok(())
}

/// Checks that a file is a regular file with one hard link that belongs to the caller or root, and that no other user may
/// write to it.
///
/// # Errors
/// If one of these conditions is not met.
pub fn check_private_file(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if !metadata.is_file() || metadata.nlink() > 1 {
        let text = format!("{} is not a regular file with one name", path.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    check_owner(path, metadata)?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(not_safe(path, metadata, "others than its owner may write to it; chmod go-w it"));
    }
    Ok(())
}

/// Checks that a program is a regular file that belongs to the caller or root, and that no other user may write to it.
///
/// # Errors
/// If one of these conditions is not met.
pub fn check_program(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{} is not a regular file", path.display())));
    }
    check_owner(path, metadata)?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(not_safe(path, metadata, "others than its owner may write to it; chmod go-w it"));
    }
    Ok(())
}

fn push(pending: &mut Vec<OsString>, path: &Path) {
    pending.extend(path.components().rev().map(|component| component.as_os_str().to_owned()));
}

/// Appends the remaining components of a path to a component that does not exist.
fn resolve_missing(mut found: PathBuf, mut pending: Vec<OsString>) -> io::Result<PathBuf> {
    while let Some(name) = pending.pop() {
        if name == ".." {
            return Err(ErrorKind::NotFound.into());
        }
        found.push(name);
    }
    Ok(found)
}

fn check_link(link: &Path, metadata: &Metadata, parent: &Path, links: usize) -> io::Result<()> {
    if links > MAX_LINKS {
        return Err(nix::errno::Errno::ELOOP.into());
    }
    check_owner(link, metadata)?;
    // In a directory such as /tmp, any user can create a hard link to a symbolic link of root.
    let parent_metadata = fs::symlink_metadata(parent)?;
    if parent_metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        let reason = format!("others may write to {}, where it is a symbolic link", parent.display());
        return Err(not_safe(link, metadata, &reason));
    }
    Ok(())
}

/// Checks a component of a path. In a directory with the sticky bit, users cannot replace the entries of other users.
fn check_parent(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if !metadata.is_dir() {
        return Err(not_a_directory(path));
    }
    check_owner(path, metadata)?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 && metadata.mode() & STICKY == 0 {
        return Err(not_safe(path, metadata, "others than its owner may replace what is in it; chmod go-w it"));
    }
    Ok(())
}

fn check_owner(path: &Path, metadata: &Metadata) -> io::Result<()> {
    let (owner, caller) = (Uid::from_raw(metadata.uid()), geteuid());
    if owner.is_root() || owner == caller {
        return Ok(());
    }
    Err(not_safe(path, metadata, &format!("its owner must be {}", user_name(caller))))
}

fn not_a_directory(path: &Path) -> io::Error {
    io::Error::new(ErrorKind::NotADirectory, format!("{} is not a directory", path.display()))
}

/// Returns an error with the path, its owner and mode, and the reason.
fn not_safe(path: &Path, metadata: &Metadata, reason: &str) -> io::Error {
    let (owner, mode) = (user_name(Uid::from_raw(metadata.uid())), metadata.permissions().mode() & 0o7777);
    let text = format!("{} (owner {owner}, mode {mode:04o}) is not safe to use: {reason}", path.display());
    io::Error::new(ErrorKind::PermissionDenied, text)
}

fn user_name(uid: Uid) -> String {
    let name = User::from_uid(uid).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| format!("uid {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, lchown, symlink};

    /// A user other than the caller and root.
    const NOBODY: u32 = 65534;

    fn directory(path: &Path, mode: u32) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn links_and_dots_are_resolved_before_missing_components() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        directory(&base.join("real"), 0o755);
        symlink("real", base.join("link")).unwrap();
        symlink(base.join("link/../link"), base.join("chain")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        for (path, expected) in [
            ("link", "real"),
            ("chain/new/dir", "real/new/dir"),
            ("./real/../link/new", "real/new"),
            ("missing/new", "missing/new"),
        ] {
            assert_eq!(resolve(&base.join(path)).unwrap(), base.join(expected), "{path}");
        }
        assert_eq!(resolve(&base.join("loop")).unwrap_err().raw_os_error(), Some(nix::errno::Errno::ELOOP as i32));
        assert!(resolve(&base.join("missing/../../new")).is_err());
        fs::write(base.join("file"), "").unwrap();
        assert_eq!(resolve(&base.join("file/new")).unwrap_err().kind(), ErrorKind::NotADirectory);
    }

    #[test]
    fn parent_that_others_can_replace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode, allowed) in
            [("private", 0o700, true), ("sticky", 0o1777, true), ("group", 0o775, false), ("open", 0o777, false)]
        {
            let parent = dir.path().join(name);
            directory(&parent, mode);
            let resolved = resolve(&parent.join("new"));
            assert_eq!(resolved.is_ok(), allowed, "{name}: {resolved:?}");
        }
        let sticky = dir.path().join("sticky");
        symlink(dir.path().join("private"), sticky.join("link")).unwrap();
        let error = resolve(&sticky.join("link")).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
    }

    #[test]
    fn path_of_another_owner_is_refused_with_name_and_mode() {
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (foreign, link) = (dir.path().join("foreign"), dir.path().join("link"));
        directory(&foreign, 0o755);
        chown(&foreign, Some(NOBODY), None).unwrap();
        symlink(dir.path(), &link).unwrap();
        lchown(&link, Some(NOBODY), None).unwrap();
        for path in [foreign.clone(), foreign.join("new"), link.join("new")] {
            let error = resolve(&path).unwrap_err().to_string();
            assert!(error.contains("owner") && error.contains("mode 0") && error.contains("must be root"), "{error}");
        }
    }

    #[test]
    fn private_directory_is_not_writable_by_others() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, allowed) in [(0o700, true), (0o755, true), (0o775, false), (0o1777, false)] {
            let path = dir.path().join(format!("{mode:o}"));
            directory(&path, mode);
            let checked = check_private(&path, &fs::symlink_metadata(&path).unwrap());
            assert_eq!(checked.is_ok(), allowed, "{mode:o}: {checked:?}");
        }
    }
}
