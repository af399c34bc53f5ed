//! Mounts root file systems: overlayfs over the layers of an image.

use crate::store::ImageStore;
use nix::mount::{MsFlags, mount};
use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
};

/// Maximum length of mount options: the kernel copies one page. Pages have 4 KiB at least.
const MAX_OPTIONS: usize = 4095;

/// Mounts an overlay at `target`. `lower` are the layers, the top one first. `options` are further options of overlayfs, for
/// example `volatile`.
///
/// The directories are named by file descriptors, so that 127 layers fit into the options, and paths may contain any
/// characters.
///
/// # Errors
/// If a directory cannot be opened, the options do not fit into a page, or the kernel refuses the mount.
pub fn mount_overlay(lower: &[PathBuf], upper: &Path, work: &Path, target: &Path, options: &[&str]) -> io::Result<()> {
    let mut overlay = Overlay::new(lower)?;
    overlay.add("upperdir", upper)?;
    overlay.add("workdir", work)?;
    overlay.mount(target, options, MsFlags::empty())
}

/// Creates the writable directory of an overlay. It is the root directory of the container: any user may pass, and it belongs
/// to the owner of the image's root directory, as with containerd.
///
/// # Errors
/// If it exists or cannot be created.
pub fn create_upper(lower: &[PathBuf], upper: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(upper)?;
    // The mask of the process may have removed permissions.
    fs::set_permissions(upper, fs::Permissions::from_mode(0o755))?;
    let Some(top) = lower.first() else { return Ok(()) };
    let owner = fs::metadata(top)?;
    chown(upper, Some(owner.uid()), Some(owner.gid()))
}

impl ImageStore {
    /// Mounts layers at `target`, read-only, as an image volume: as [`ImageStore::acquire`] returns them.
    ///
    /// # Errors
    /// As of [`mount_overlay`].
    pub fn mount_read_only(&self, lower: &[PathBuf], target: &Path) -> io::Result<()> {
        let mut lower = lower.to_vec();
        if lower.len() == 1 {
            // Without an upper directory, overlayfs needs two lower ones.
            lower.push(self.dir("bottom"));
        }
        Overlay::new(&lower)?.mount(target, &[], MsFlags::MS_RDONLY)
    }
}

/// Options of a mount, and the open directories that they name.
struct Overlay {
    data: String,
    dirs: Vec<File>,
}

impl Overlay {
    fn new(lower: &[PathBuf]) -> io::Result<Self> {
        if lower.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an overlay without a lower directory"));
        }
        let dirs = lower.iter().map(|dir| open(dir)).collect::<io::Result<Vec<_>>>()?;
        let paths: Vec<String> = dirs.iter().map(fd_path).collect();
        Ok(Self { data: format!("lowerdir={}", paths.join(":")), dirs })
    }

    fn add(&mut self, option: &str, dir: &Path) -> io::Result<()> {
        let dir = open(dir)?;
        let _ = write!(self.data, ",{option}={}", fd_path(&dir));
        self.dirs.push(dir);
        Ok(())
    }

    fn mount(mut self, target: &Path, options: &[&str], flags: MsFlags) -> io::Result<()> {
        for option in options {
            let _ = write!(self.data, ",{option}");
        }
        if self.data.len() > MAX_OPTIONS {
            // The kernel would ignore the rest.
            let layers = self.dirs.len();
            let problem = format!("the mount options of {layers} directories exceed {MAX_OPTIONS} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        mount(Some("overlay"), target, Some("overlay"), flags, Some(self.data.as_str())).map_err(io::Error::from)
    }
}

/// Opens a directory, not for reading: only its path matters.
fn open(dir: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(dir);
    file.map_err(|error| io::Error::new(error.kind(), format!("failed to open {}: {error}", dir.display())))
}

fn fd_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
