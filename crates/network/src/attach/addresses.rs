//! Addresses of Pods (IPAM): one file per address.
//!
//! The file of an address is a hard link to the record of its sandbox ([`super::record`]), so that allocation is one
//! atomic step, and an address never lacks its owner.

use crate::Error;
use ipnet::Ipv4Net;
use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind},
    net::Ipv4Addr,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// File with the last allocated address: the next one is allocated, so that addresses are not reused at once.
const LAST: &str = "last_reserved_ip.0";

#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// Directory of the network, below that of the IPAM.
    pub(crate) dir: PathBuf,
    pub(crate) cidr: Ipv4Net,
    pub(crate) gateway: Ipv4Addr,
}

impl Addresses {
    /// Allocates the next free address for a record.
    ///
    /// # Errors
    /// When all are in use, in the words of host-local.
    pub(crate) fn allocate(&self, record: &Path) -> Result<Ipv4Addr, Error> {
        files::create_private_dir_all(&self.dir).map_err(Error::file("create", &self.dir))?;
        let (first, last) = (u32::from(self.cidr.network()).saturating_add(1), u32::from(self.cidr.broadcast()) - 1);
        let previous = fs::read_to_string(self.dir.join(LAST)).ok().and_then(|text| text.trim().parse().ok());
        let start = previous.map_or(first, |ip: Ipv4Addr| u32::from(ip).saturating_add(1)).max(first);
        let candidates = (start..=last).chain(first..=last.min(start.saturating_sub(1))).map(Ipv4Addr::from);
        for ip in candidates.filter(|ip| *ip != self.gateway) {
            let path = self.file(ip);
            match fs::hard_link(record, &path) {
                Ok(()) => {
                    self.save_last(ip).map_err(Error::file("write", &self.dir.join(LAST)))?;
                    return Ok(ip);
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::file("create", &path)(e)),
            }
        }
        Err(Error::AddressesExhausted { first: first.into(), last: last.into() })
    }

    /// Not durable: after a reboot, no address is in use.
    fn save_last(&self, ip: Ipv4Addr) -> io::Result<()> {
        let (mut options, text) = (OpenOptions::new(), ip.to_string());
        let file = options.create(true).write(true).truncate(false).mode(0o600).open(self.dir.join(LAST))?;
        // ext4 writes a file to the disk when it was truncated to zero before.
        file.write_all_at(text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)
    }

    /// Releases an address. Missing files are not an error.
    pub(crate) fn release(&self, ip: Ipv4Addr) -> Result<(), Error> {
        let path = self.file(ip);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::file("remove", &path)(e)),
            _ => Ok(()),
        }
    }

    /// Returns the allocated addresses.
    pub(crate) fn allocated(&self) -> Result<Vec<Ipv4Addr>, Error> {
        let files = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(Error::file("read", &self.dir))?,
        };
        Ok(files.flatten().filter_map(|file| file.file_name().to_str()?.parse().ok()).collect())
    }

    /// Returns an address with the prefix length of the network.
    pub(crate) fn with_prefix(&self, ip: Ipv4Addr) -> Ipv4Net {
        Ipv4Net::new(ip, self.cidr.prefix_len()).unwrap_or(self.cidr)
    }

    pub(crate) fn file(&self, ip: Ipv4Addr) -> PathBuf {
        self.dir.join(ip.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(dir: &Path, cidr: &str) -> (Addresses, PathBuf) {
        let cidr: Ipv4Net = cidr.parse().unwrap();
        let record = dir.join("record");
        fs::write(&record, "").unwrap();
        (Addresses { dir: dir.join("ipam/pd-1"), cidr, gateway: crate::pod_cidr::gateway(cidr) }, record)
    }

    #[test]
    fn released_address_is_reused_last() {
        let dir = tempfile::tempdir().unwrap();
        let (addresses, record) = addresses(dir.path(), "10.1.1.0/29");
        let next = || addresses.allocate(&record).map(|ip| ip.octets()[3]).map_err(|e| e.to_string());
        assert_eq!((next(), next(), next()), (Ok(2), Ok(3), Ok(4)));
        addresses.release(Ipv4Addr::new(10, 1, 1, 2)).unwrap();
        assert_eq!((next(), next(), next()), (Ok(5), Ok(6), Ok(2)));
        // The words of host-local.
        let full = "failed to allocate for range 0: no IP addresses available in range set: 10.1.1.1-10.1.1.6";
        assert_eq!(next(), Err(full.to_owned()));
        addresses.release(Ipv4Addr::new(10, 1, 1, 4)).unwrap();
        addresses.release(Ipv4Addr::new(10, 1, 1, 4)).unwrap();
        assert_eq!(next(), Ok(4));
        assert_eq!(addresses.allocated().unwrap().len(), 5);
    }

    #[test]
    fn existing_files_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let (addresses, record) = addresses(dir.path(), "10.1.1.0/24");
        fs::create_dir_all(&addresses.dir).unwrap();
        fs::write(addresses.dir.join("10.1.1.8"), "c1").unwrap();
        fs::write(addresses.dir.join("lock"), "").unwrap();
        fs::write(addresses.dir.join(LAST), "10.1.1.7").unwrap();
        assert_eq!(addresses.allocate(&record).unwrap(), Ipv4Addr::new(10, 1, 1, 9));
        // A damaged file, or one of another CIDR, starts again.
        for text in ["?", "10.1.0.4", "10.1.1.255", "255.255.255.255"] {
            fs::write(addresses.dir.join(LAST), text).unwrap();
            let ip = addresses.allocate(&record).unwrap();
            assert!((2..8).contains(&ip.octets()[3]), "{text}: {ip}");
        }
    }
}
