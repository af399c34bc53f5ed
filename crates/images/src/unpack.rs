//! Unpacks a layer into a directory for overlayfs.
//!
//! Whiteouts `.wh.NAME` become character devices 0:0, and `.wh..wh..opq` the attribute of an opaque directory. Directories that
//! the archive leaves out, and files that it only links to, are copied from the layers below, as containerd's `WithParents`
//! does. A symbolic link of the archive in the path of a later entry is resolved beneath the root; one of a layer below is
//! replaced by a directory, as by containerd.

mod attributes;
mod limits;
mod parents;
mod read_ahead;
mod regular_file;
mod tree;

pub(crate) use limits::{Limits, MAX_BYTES, Measured};
pub(crate) use tree::{Tree, is_opaque};

use crate::{
    Digest,
    decompress::decompress,
    error::invalid,
    tar_reader::{Entry, Kind, TarReader, drain},
};
use attributes::Attributes;
use limits::Budget;
use parents::Parents;
use read_ahead::read_ahead;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, AtFlags, FileType, Mode, Timestamps},
    io::Errno,
};
use std::{
    io::{self, BufRead, Read},
    rc::Rc,
};
use tree::{components, file_type, is_whiteout, join, make_opaque, make_whiteout, remove, stat};

/// Begin of the name of a whiteout (OCI image specification, layer.md).
const WHITEOUT: &[u8] = b".wh.";
/// Name of the whiteout that makes its directory opaque.
const OPAQUE_WHITEOUT: &[u8] = b".wh..wh..opq";
/// Begin of the names of AUFS' own files, which are ignored.
const AUFS_FILES: &[u8] = b".wh..wh.";

/// Maximum number of symbolic links in a path, as in Linux (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// Unpacks a layer into an empty directory. `parents` are the layers below, the top one first. Returns the digest of the
/// uncompressed archive.
///
/// # Errors
/// If the archive is malformed or exceeds a limit, or if the machine refuses a write.
pub(crate) fn unpack(
    archive: impl Read + Send,
    target: Tree,
    parents: Vec<Tree>,
    limits: &Limits,
) -> io::Result<Digest> {
    let measured = Measured::new(decompress(archive)?, limits.bytes);
    let mut unpacker = Unpacker {
        target,
        parents: Parents::new(parents),
        budget: Budget::new(limits),
        directories: Vec::new(),
        last: None,
    };
    read_ahead(measured, |data| {
        let mut reader = TarReader::new(data);
        unpacker.copy_root_attributes()?;
        while let Some(entry) = reader.next_entry()? {
            unpacker.budget.count_entry()?;
            let path = || format!("{:?}", String::from_utf8_lossy(&entry.path));
            unpacker.apply(&entry, &mut reader).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path())))?;
        }
        unpacker.set_directory_times()?;
        // The digest is that of the whole stream, with whatever follows the archive.
        drain(reader.into_inner())
    })
}

/// A directory of the layer.
struct Directory {
    fd: OwnedFd,
    /// Its path, without symbolic links.
    path: Vec<u8>,
}

struct Unpacker {
    target: Tree,
    parents: Parents,
    budget: Budget,
    /// Times of directories, which are set last: each new file changes them.
    directories: Vec<(Vec<u8>, Timestamps)>,
    /// The last directory, with its path in the archive. Most entries follow one of the same directory.
    last: Option<(Vec<u8>, Rc<Directory>)>,
}

impl Unpacker {
    fn apply(&mut self, entry: &Entry, data: &mut impl BufRead) -> io::Result<()> {
        let names = components(&entry.path)?;
        let Some((name, above)) = names.split_last() else {
            return self.apply_root(entry);
        };
        let is_aufs = |name: &&[u8]| name.starts_with(AUFS_FILES);
        if above.iter().any(is_aufs) || is_aufs(name) && *name != OPAQUE_WHITEOUT {
            return Ok(());
        }
        let dir = self.directory(above)?;
        if *name == OPAQUE_WHITEOUT {
            return Ok(make_opaque(&dir.fd)?);
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return whiteout(&dir, hidden);
        }
        match entry.kind {
            Kind::Directory => self.make_directory(&dir, name, Some(&Attributes::new(entry))),
            Kind::File => self.make_file(&dir, name, entry, data),
            Kind::HardLink => self.make_hard_link(&dir, name, &entry.link),
            Kind::Symlink => self.make_symlink(&dir, name, entry),
            Kind::CharDevice => self.make_node(&dir, name, FileType::CharacterDevice, entry),
            Kind::BlockDevice => self.make_node(&dir, name, FileType::BlockDevice, entry),
            Kind::Fifo => self.make_node(&dir, name, FileType::Fifo, entry),
        }
    }

    /// Sets the attributes of the layer's root directory, which becomes that of the container.
    fn apply_root(&mut self, entry: &Entry) -> io::Result<()> {
        if entry.kind != Kind::Directory {
            return Err(invalid("the root is not a directory"));
        }
        let attributes = Attributes::new(entry);
        attributes.apply(&self.target.root())?;
        self.remember_times(Vec::new(), &attributes)
    }

    fn copy_root_attributes(&mut self) -> io::Result<()> {
        let attributes = match self.parents.root() {
            Some(parent) => Attributes::read(&fs::fstat(parent.root())?, Some(&parent.root()))?,
            None => Attributes::default_directory(),
        };
        attributes.apply(&self.target.root())?;
        self.remember_times(Vec::new(), &attributes)
    }

    /// Opens a directory for a new entry, and creates what is missing of its path.
    fn directory(&mut self, names: &[&[u8]]) -> io::Result<Rc<Directory>> {
        let path = join(names);
        if let Some((last, directory)) = &self.last
            && *last == path
        {
            return Ok(directory.clone());
        }
        let directory = match self.target.open_dir(&path) {
            Ok(fd) => Directory { fd, path: path.clone() },
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {
                let path = join(&self.resolve(names)?);
                Directory { fd: self.target.open_dir(&path)?, path }
            }
            Err(error) => return Err(error.into()),
        };
        let directory = Rc::new(directory);
        self.last = Some((path, directory.clone()));
        Ok(directory)
    }

    /// Resolves the symbolic links of a path beneath the root, and creates missing directories.
    fn resolve(&mut self, names: &[&[u8]]) -> io::Result<Vec<Vec<u8>>> {
        let mut pending: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
        let mut resolved: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        while let Some(name) = pending.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                // Above the root is the root.
                b".." => {
                    resolved.pop();
                    continue;
                }
                _ => {}
            }
            if resolved.len() >= tree::MAX_DEPTH {
                return Err(invalid("directories are nested too deeply"));
            }
            let dir = Directory { path: join(&resolved), fd: self.target.open_dir(&join(&resolved))? };
            match stat(&dir.fd, &name)? {
                Some(found) if file_type(&found) == FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(invalid("too many levels of symbolic links"));
                    }
                    let link = fs::readlinkat(&dir.fd, name.as_slice(), Vec::new())?.into_bytes();
                    if link.starts_with(b"/") {
                        resolved.clear();
                    }
                    pending.extend(link.split(|b| *b == b'/').rev().map(<[u8]>::to_vec));
                    continue;
                }
                Some(found) if file_type(&found) == FileType::Directory => {}
                Some(found) if !is_whiteout(&found) => return Err(Errno::NOTDIR.into()),
                _ => {
                    self.budget.count_entry()?;
                    self.make_directory(&dir, &name, None)?;
                }
            }
            resolved.push(name);
        }
        Ok(resolved)
    }

    /// Creates a directory, or changes an existing one. Without attributes, they are those of the layers below.
    fn make_directory(&mut self, dir: &Directory, name: &[u8], attributes: Option<&Attributes>) -> io::Result<()> {
        let existing = stat(&dir.fd, name)?;
        let is_directory = existing.is_some_and(|stat| file_type(&stat) == FileType::Directory);
        let was_whiteout = existing.is_some_and(|stat| is_whiteout(&stat));
        if existing.is_some() && !is_directory {
            self.remove(dir, name)?;
        }
        if !is_directory {
            fs::mkdirat(&dir.fd, name, Mode::RWXU)?;
        }
        let fd = tree::open_dir(&dir.fd, name)?;
        if was_whiteout {
            // Removed and created again: what layers below have there stays hidden.
            make_opaque(&fd)?;
        }
        let path = [dir.path.as_slice(), name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let path = path.join(&b'/');
        let attributes = match attributes {
            Some(attributes) => attributes.clone(),
            None if was_whiteout => Attributes::default_directory(),
            None => self.attributes_below(&path, name)?,
        };
        attributes.apply(&fd)?;
        self.remember_times(path, &attributes)
    }

    /// Returns the attributes of a directory of the layers below, or the default.
    fn attributes_below(&self, path: &[u8], name: &[u8]) -> io::Result<Attributes> {
        match self.parents.find(&components(path)?)? {
            Some(lower) if file_type(&lower.stat) == FileType::Directory => {
                Attributes::read(&lower.stat, Some(&lower.open_dir(name)?))
            }
            _ => Ok(Attributes::default_directory()),
        }
    }

    fn remember_times(&mut self, path: Vec<u8>, attributes: &Attributes) -> io::Result<()> {
        self.budget.count_directory(path.len())?;
        self.directories.push((path, attributes.times().clone()));
        Ok(())
    }

    fn set_directory_times(&self) -> io::Result<()> {
        for (path, times) in &self.directories {
            match self.target.open_dir(path) {
                Ok(dir) => fs::futimens(dir, times)?,
                // A later entry has replaced it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes an existing name, which a later entry replaces.
    fn remove(&mut self, dir: &Directory, name: &[u8]) -> io::Result<()> {
        // The last directory may be among what is removed.
        self.last = None;
        Ok(remove(dir.fd.as_fd(), name)?)
    }

    /// Creates a name, and replaces an existing one.
    fn create<T>(
        &mut self,
        dir: &Directory,
        name: &[u8],
        create: impl Fn(&OwnedFd) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        match create(&dir.fd) {
            Err(Errno::EXIST) => {
                self.remove(dir, name)?;
                Ok(create(&dir.fd)?)
            }
            result => Ok(result?),
        }
    }

    fn make_symlink(&mut self, dir: &Directory, name: &[u8], entry: &Entry) -> io::Result<()> {
        self.create(dir, name, |fd| fs::symlinkat(entry.link.as_slice(), fd, name))?;
        Attributes::new(entry).apply_at(&dir.fd, name, true)
    }

    fn make_node(&mut self, dir: &Directory, name: &[u8], file_type: FileType, entry: &Entry) -> io::Result<()> {
        let (major, minor) = entry.device;
        let attributes = Attributes::new(entry);
        self.create(dir, name, |fd| fs::mknodat(fd, name, file_type, attributes.mode(), fs::makedev(major, minor)))?;
        attributes.apply_at(&dir.fd, name, false)
    }

    /// Links to a file of this layer, or to a copy of one of the layers below.
    fn make_hard_link(&mut self, dir: &Directory, name: &[u8], link: &[u8]) -> io::Result<()> {
        let names = components(link)?;
        let missing = || invalid(format!("link to {:?}, which does not exist", String::from_utf8_lossy(link)));
        let (source, above) = names.split_last().ok_or_else(missing)?;
        let source_dir = self.directory(above)?;
        match stat(&source_dir.fd, source)? {
            None => self.copy_up(&source_dir, source)?.ok_or_else(missing)?,
            Some(found) if is_whiteout(&found) => return Err(missing()),
            Some(found) if file_type(&found) == FileType::Directory => return Err(invalid("link to a directory")),
            Some(_) => {}
        }
        self.create(dir, name, |fd| fs::linkat(&source_dir.fd, *source, fd, name, AtFlags::empty()))
    }
}

/// Hides a name of the layers below. What the archive itself has there stays.
fn whiteout(dir: &Directory, name: &[u8]) -> io::Result<()> {
    if matches!(name, b"" | b"." | b"..") {
        return Err(invalid("a whiteout without a name"));
    }
    match stat(&dir.fd, name)? {
        None => Ok(make_whiteout(&dir.fd, name)?),
        Some(found) if file_type(&found) == FileType::Directory => Ok(make_opaque(tree::open_dir(&dir.fd, name)?)?),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
