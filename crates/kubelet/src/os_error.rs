//! Messages of OS errors in Go's format.

use nix::errno::Errno;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Returns the message of an OS error as Go formats it: `no such file or directory`.
pub(crate) fn message(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |code| Errno::from_raw(code).desc().to_lowercase())
}

/// Failed system call with its path, formatted like Go's `PathError`: `mkdir a/b: file exists`.
#[derive(Debug, thiserror::Error)]
#[error("{call} {}: {}", .path.display(), message(.source))]
pub(crate) struct PathError {
    call: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl PathError {
    pub(crate) fn new(call: &'static str, path: &Path, source: io::Error) -> Self {
        Self { call, path: path.to_owned(), source }
    }
}

impl From<PathError> for io::Error {
    fn from(error: PathError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_errors_are_formatted_like_in_go() {
        let error = io::Error::from_raw_os_error(Errno::EEXIST as i32);
        assert_eq!(message(&error), "file exists");
        let named = io::Error::from(PathError::new("mkdir", Path::new("a/b"), error));
        assert_eq!((named.kind(), message(&named).as_str()), (io::ErrorKind::AlreadyExists, "mkdir a/b: file exists"));
    }
}
