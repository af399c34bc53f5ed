//! Reads small files whose size is not trusted.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Reads a file up to a limit in bytes; what follows is ignored.
///
/// # Errors
/// If it cannot be read. The error names it.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut content))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read_bounded(&path, 3).unwrap(), b"abc");
        assert_eq!(read_bounded(&path, 2).unwrap(), b"ab");
        let error = read_bounded(&dir.path().join("missing"), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/missing: "), "{error}");
        // An endless file.
        assert_eq!(read_bounded(Path::new("/dev/zero"), 9).unwrap(), [0; 9]);
    }
}
