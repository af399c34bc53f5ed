//! Errors of the operating system in words for people, without their numbers.

use nix::errno::Errno;
use std::{io, path::Path};

/// The kernel's error as Go, and so upstream, writes it: `no such file or directory`.
pub(crate) fn words(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |code| Errno::from_raw(code).desc().to_lowercase())
}

/// An error that names what was done to which path, as Go's `PathError`: `mkdir a/b: file exists`.
pub(crate) fn at(call: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call} {}: {}", path.display(), words(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_words_and_not_numbers() {
        let error = io::Error::from_raw_os_error(Errno::EEXIST as i32);
        assert_eq!(words(&error), "file exists");
        let named = at("mkdir", Path::new("a/b"), &error);
        assert_eq!((named.kind(), words(&named).as_str()), (io::ErrorKind::AlreadyExists, "mkdir a/b: file exists"));
    }
}
