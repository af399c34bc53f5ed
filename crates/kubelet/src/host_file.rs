//! Bounded reads of files of the node that containers cannot write: of the kernel, the administrator and the kubelet.
//!
//! Clippy forbids unbounded reads in this crate (`.clippy.toml`). Files that a container can write are read through
//! [`crate::untrusted_file`].

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    path::Path,
};

/// Size limit in bytes. The largest files are `mountinfo` and `cgroup.procs` of a node with many Pods, and checkpoints.
const MAX_SIZE: u64 = 32 << 20;

/// Reads a file.
///
/// # Errors
/// `FileTooLarge` beyond 32 MiB.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_at_most(path.as_ref(), MAX_SIZE)
}

/// Reads a text file.
///
/// # Errors
/// `FileTooLarge` beyond 32 MiB, `InvalidData` when it is not UTF-8.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let invalid = |_| io::Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8");
    String::from_utf8(read(path)?).map_err(invalid)
}

#[expect(clippy::disallowed_methods, reason = "the one bounded read of the node's own files")]
fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("file is larger than {limit} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_file_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), b"12345");
        assert_eq!(read_at_most(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_text(&path).unwrap(), "12345");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    /// Clippy reads the nearest configuration only, so this crate's must repeat the workspace's.
    #[test]
    fn clippy_configuration_repeats_the_workspace() {
        let (root_config, crate_config) = (include_str!("../../../.clippy.toml"), include_str!("../.clippy.toml"));
        for line in root_config.lines().filter(|line| !line.trim_start().starts_with('#')) {
            assert!(crate_config.lines().any(|l| l == line), "{line}");
        }
    }
}
