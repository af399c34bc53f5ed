//! Numbers for the concurrent containerds of a machine: each has a directory, a bridge and a block of addresses by its number.

use crate::cleanup;
use std::{
    fs, io,
    net::Ipv4Addr,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::MetadataExt,
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
};

/// Number of slots.
const SLOTS: u8 = 64;

/// A slot with an empty directory. Everything in it is removed on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    number: u8,
    dir: PathBuf,
    /// Lock: an abstract socket, which the kernel closes when this process ends, and which leaves no file. Like the bridge
    /// it belongs to the network namespace.
    _lock: UnixListener,
}

impl Slot {
    /// Removes what killed processes left in their slots, and takes a free one.
    pub(crate) fn take() -> io::Result<Self> {
        for number in (0..SLOTS).filter(|number| is_own(&directory(*number))) {
            drop(Self::lock(number));
        }
        let free = (0..SLOTS).filter(|number| !directory(*number).exists()).find_map(Self::lock);
        let slot = free.ok_or_else(|| io::Error::other("all slots for containerd are in use"))?;
        fs::create_dir(&slot.dir)?;
        Ok(slot)
    }

    fn lock(number: u8) -> Option<Self> {
        let address = SocketAddr::from_abstract_name(format!("podium-test-containerd-{number}")).ok()?;
        let lock = UnixListener::bind_addr(&address).ok()?;
        Some(Self { number, dir: directory(number), _lock: lock })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// Returns the name of the bridge and the CNI network.
    pub(crate) fn bridge(&self) -> String {
        format!("test-cni{}", self.number)
    }

    /// Returns the address of the block of Pod addresses, a /24. Podium takes its blocks from 10.244.0.0/16.
    pub(crate) fn subnet(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 245, self.number, 0)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        cleanup::remove(&self.dir, &self.bridge());
    }
}

/// Whether it is a directory, not a link, of this user: others can create files in the directory for temporary files.
fn is_own(dir: &Path) -> bool {
    let user = nix::unistd::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user)
}

fn directory(number: u8) -> PathBuf {
    std::env::temp_dir().join(format!("podium-test-containerd-{number}"))
}
