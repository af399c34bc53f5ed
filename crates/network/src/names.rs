//! Names of a data directory's bridge and files.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Data directory whose bridge is named `podium`.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/podium";

/// Names and paths of a data directory's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// Data directory, absolute and without symbolic links if it exists.
    pub(crate) data_dir: PathBuf,
    /// Name of the bridge and the masquerading table: at most 15 bytes, the kernel's limit for
    /// interfaces.
    pub(crate) bridge: String,
    /// Alias of the bridge, which names its owner (`ip -d link`).
    pub(crate) alias: String,
    /// MAC address of the bridge: a bridge without a fixed one changes it whenever a Pod is added or removed.
    pub(crate) mac: [u8; 6],
}

impl Names {
    pub(crate) fn of(data_dir: &Path) -> Self {
        let data_dir = data_dir
            .canonicalize()
            .or_else(|_| std::path::absolute(data_dir))
            .unwrap_or_else(|_| data_dir.to_path_buf());
        let digest = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
        let hex = HEXLOWER.encode(&digest[..4]);
        let bridge = if data_dir == Path::new(DEFAULT_DATA_DIR) { "podium".to_owned() } else { format!("pd-{hex}") };
        let mut mac = [0; 6];
        mac.copy_from_slice(&digest[4..10]);
        // Locally administered, unicast.
        mac[0] = (mac[0] | 0b10) & !0b1;
        let mut alias = format!("podium {}", data_dir.display());
        // The kernel's limit is 255 bytes.
        if alias.len() > 200 {
            alias = format!("podium data directory {hex}");
        }
        Self { data_dir, bridge, alias, mac }
    }

    /// Returns the directory of all files that this crate writes.
    pub(crate) fn dir(&self) -> PathBuf {
        self.data_dir.join("network")
    }

    /// Returns the directory of the sandboxes that Podium itself connected.
    pub(crate) fn attachments_dir(&self) -> PathBuf {
        self.dir().join("attachments")
    }

    /// Returns the lock of changes of their nftables tables.
    pub(crate) fn tables_lock(&self) -> PathBuf {
        self.dir().join("tables.lock")
    }

    pub(crate) fn ipam_dir(&self) -> PathBuf {
        self.dir().join("ipam")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_data_directory_has_its_own_bridge() {
        let (a, b) = (Names::of(Path::new("/a")), Names::of(Path::new("/b")));
        assert_ne!(a.bridge, b.bridge);
        assert_ne!(a.mac, b.mac);
        assert_eq!(a.bridge, Names::of(Path::new("/a")).bridge);
        assert!(a.bridge.starts_with("pd-") && a.bridge.len() == 11);
        assert_eq!(a.mac[0] & 0b11, 0b10);
    }

    #[test]
    fn default_data_directory_has_bridge_podium() {
        assert_eq!(Names::of(Path::new(DEFAULT_DATA_DIR)).bridge, "podium");
    }

    #[test]
    fn long_path_yields_valid_interface_alias() {
        let names = Names::of(Path::new(&format!("/{}", "x".repeat(300))));
        assert!(names.alias.len() < 256);
    }
}
