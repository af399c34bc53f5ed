//! Messages of OS errors in Go's format.

use nix::errno::Errno;
use std::{io, path::Path};

/// Returns the message of an OS error as Go formats it: `no such file or directory`.
pub(crate) fn message(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |code| Errno::from_raw(code).desc().to_lowercase())
}

/// Adds the system call and the path to an error, like Go's `PathError`: `mkdir a/b: file exists`.
pub(crate) fn with_path(call: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call} {}: {}", path.display(), message(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_errors_are_formatted_like_in_go() {
        let error = io::Error::from_raw_os_error(Errno::EEXIST as i32);
        assert_eq!(message(&error), "file exists");
        let named = with_path("mkdir", Path::new("a/b"), &error);
        assert_eq!((named.kind(), message(&named).as_str()), (io::ErrorKind::AlreadyExists, "mkdir a/b: file exists"));
    }
}
