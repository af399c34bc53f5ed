//! Files that a container, or a tenant through a volume, can write or replace.
//!
//! Such a file may be sparse and huge, grow while it is read, or be a symbolic link, a FIFO or a device. It is read
//! through
//! this module only: it opens only regular files, follows no links, never blocks on open, and limits each read.
//! Callers use
//! the blocking thread pool ([`crate::blocking`]).

use crate::safe_open;
use nix::{
    fcntl::{OFlag, open as open_at},
    sys::stat::Mode,
};
use std::{
    fs::File,
    io::{self, ErrorKind},
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::Path,
};

/// Opens a regular file for reading. The last component of the path must not be a symbolic link.
///
/// # Errors
/// Fails if the file is missing or not a regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // O_PATH first: opening a device for reading may have side effects.
    let found: OwnedFd = open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    let found = require_regular(found.into())?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    Ok(open_at(&safe_open::proc_fd_path(&found.into()), flags, Mode::empty())?.into())
}

/// Fails for everything that is not a regular file.
pub(crate) fn require_regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// Reads the start of a file, at most `limit` bytes.
pub(crate) fn read_beginning(file: &File, limit: usize) -> io::Result<Vec<u8>> {
    read_at(file, 0, limit)
}

/// Reads the end of a file, at most `limit` bytes. Returns whether that is the whole file.
pub(crate) fn read_end(file: &File, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    let start = file.metadata()?.len().saturating_sub(limit as u64);
    Ok((read_at(file, start, limit)?, start == 0))
}

/// Reads from `offset`, at most `limit` bytes; fewer only at the end of the file.
pub(crate) fn read_at(file: &impl ReadAt, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
    // The buffer grows with the file's content, not with the limit.
    let mut bytes = Vec::new();
    while bytes.len() < limit {
        let filled = bytes.len();
        bytes.resize(limit.min(filled + BLOCK), 0);
        let read = file.read_at(&mut bytes[filled..], offset + filled as u64);
        bytes.truncate(filled + read.as_ref().map_or(0, |read| *read));
        match read {
            Ok(0) => break,
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(bytes)
}

/// Size of one read in bytes.
pub(crate) const BLOCK: usize = 64 << 10;

/// Positional reads; tests count them.
pub(crate) trait ReadAt {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::mkfifo;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("/dev/zero", at("device-link")).unwrap();
        mkfifo(&at("fifo"), Mode::from_bits_truncate(0o666)).unwrap();
        fs::create_dir(at("directory")).unwrap();
        for name in ["link", "device-link", "fifo", "directory"] {
            let error = open(&at(name)).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{name}");
        }
        open(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(open(&at("none")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read_beginning(&open(&at("file")).unwrap(), 10).unwrap(), b"text");
    }

    #[test]
    fn reads_of_a_huge_file_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        fs::write(&path, "begin").unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(b"end", (1 << 40) - 3).unwrap();
        let file = open(&path).unwrap();
        let (end, whole) = read_end(&file, 10).unwrap();
        assert_eq!((end.as_slice(), whole), (&b"\0\0\0\0\0\0\0end"[..], false));
        let beginning = read_beginning(&file, 3 * BLOCK + 1).unwrap();
        assert_eq!((beginning.len(), &beginning[..6]), (3 * BLOCK + 1, &b"begin\0"[..]));
    }

    #[test]
    fn small_file_is_read_completely() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "text").unwrap();
        let file = open(&path).unwrap();
        assert_eq!(read_end(&file, 4).unwrap(), (b"text".to_vec(), true));
        assert_eq!(read_end(&file, 2).unwrap(), (b"xt".to_vec(), false));
        assert_eq!(read_beginning(&file, 2).unwrap(), b"te");
    }
}
