//! Opens persistent files safely.
//!
//! Podium runs as root: a link planted by another user would make it write to an arbitrary file.

use crate::{private_dir_builder, trust};
use nix::{errno::Errno, fcntl::OFlag};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Opens a file, or creates it with mode 0600 if the options allow that. The caller must have checked its directory.
///
/// # Errors
/// If it is a link, a device or a pipe, has several hard links, or belongs to a user other than the caller and root.
pub fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Opening a pipe without a reader would block.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file =
        options.mode(0o600).custom_flags(flags.bits()).open(path).map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::ELOOP as i32 => {
                io::Error::new(ErrorKind::InvalidInput, format!("{} is a symbolic link", path.display()))
            }
            _ => error,
        })?;
    trust::check_private_file(path, &file.metadata()?)?;
    Ok(file)
}

/// Opens a log file with mode 0600 for appending. Creates missing directories.
///
/// # Errors
/// As [`open_private`], and if a user other than the caller and root could write to the directory, or replace it or one of
/// its parents.
pub fn append_private(path: &Path) -> io::Result<File> {
    let absolute = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{} is not a file", path.display())));
    };
    let parent = trust::resolve(parent)?;
    private_dir_builder().recursive(true).create(&parent)?;
    // Another user may have created a component since the first check.
    let parent = trust::resolve(&parent)?;
    trust::check_private(&parent, &fs::symlink_metadata(&parent)?)?;
    let file = open_private(&parent.join(name), OpenOptions::new().create(true).append(true))?;
    // An existing file may be readable by others.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        os::unix::fs::{chown, symlink},
        path::PathBuf,
    };

    const NOBODY: u32 = 65534;

    fn base() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        (dir, path)
    }

    #[test]
    fn log_and_its_new_directories_are_private() {
        let (_dir, base) = base();
        let path = base.join("logs/api/audit.log");
        for line in ["a\n", "b\n"] {
            append_private(&path).unwrap().write_all(line.as_bytes()).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
        append_private(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&path), mode(&base.join("logs")), mode(&base.join("logs/api"))], [0o600, 0o700, 0o700]);
    }

    #[test]
    fn log_is_never_opened_through_a_link() {
        let (_dir, base) = base();
        let victim = base.join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o644)).unwrap();
        let (soft, hard, dangling, pipe) =
            (base.join("soft"), base.join("hard"), base.join("dangling"), base.join("pipe"));
        symlink(&victim, &soft).unwrap();
        symlink(base.join("new"), &dangling).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&soft, &dangling, &pipe, &base] {
            append_private(path).unwrap_err();
        }
        assert!(!base.join("new").exists());
        fs::hard_link(&victim, &hard).unwrap();
        append_private(&hard).unwrap_err();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn log_in_a_directory_of_another_user_is_refused() {
        let (_dir, base) = base();
        for mode in [0o777, 0o1777] {
            let open = base.join(format!("{mode:o}"));
            fs::create_dir(&open).unwrap();
            fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
            let error = append_private(&open.join("audit.log")).unwrap_err().to_string();
            assert!(error.contains("not safe to use"), "{error}");
        }
        let path = base.join("audit.log");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        append_private(&path).unwrap_err();
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(NOBODY), None).unwrap();
        append_private(&path).unwrap_err();
        let home = base.join("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(NOBODY), None).unwrap();
        append_private(&home.join("audit.log")).unwrap_err();
        // A link of another user in the path.
        symlink(&base, base.join("777/way")).unwrap();
        append_private(&base.join("777/way/audit-2.log")).unwrap_err();
        assert!(!base.join("audit-2.log").exists());
    }
}
