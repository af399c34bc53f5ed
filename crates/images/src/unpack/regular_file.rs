//! Regular files of a layer.

use super::{Directory, Unpacker, attributes::Attributes, tree::file_type};
use crate::{
    error::invalid,
    tar_reader::{Chunk, Entry},
};
use rustix::{
    fd::OwnedFd,
    fs::{self, FileType, Mode, OFlags},
};
use std::{
    fs::File,
    io::{self, BufRead},
    os::unix::fs::FileExt,
};

/// Maximum size of a file in bytes, with holes. It limits what a sparse file pretends to have.
const MAX_FILE: u64 = 1 << 40;

/// Parts of this size that contain only zeros become holes.
const HOLE: usize = 64 << 10;

impl Unpacker {
    pub(super) fn make_file(
        &mut self,
        dir: &Directory,
        name: &[u8],
        entry: &Entry,
        data: &mut impl BufRead,
    ) -> io::Result<()> {
        let size = entry.sparse.as_ref().map_or(entry.size, |(size, _)| *size);
        if size > MAX_FILE {
            return Err(invalid(format!("the file has more than {MAX_FILE} bytes")));
        }
        let file = File::from(self.create_file(dir, name)?);
        match &entry.sparse {
            Some((_, chunks)) => chunks.iter().try_for_each(|chunk| write(&file, *chunk, data))?,
            None => write(&file, Chunk { offset: 0, length: size }, data)?,
        }
        if size > 0 {
            file.set_len(size)?;
        }
        Attributes::new(entry).apply(&file)
    }

    fn create_file(&mut self, dir: &Directory, name: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.create(dir, name, |fd| fs::openat(fd, name, flags, Mode::RUSR | Mode::WUSR))
    }

    /// Copies a file of the layers below into this one. Returns `None` if there is none.
    pub(super) fn copy_up(&mut self, dir: &Directory, name: &[u8]) -> io::Result<Option<()>> {
        let path = [dir.path.as_slice(), b"/", name].concat();
        let Some(lower) = self.parents.find(&super::components(&path)?)? else { return Ok(None) };
        let attributes = Attributes::read(&lower.stat, None::<&OwnedFd>)?;
        let node = file_type(&lower.stat);
        match node {
            FileType::Directory => return Err(invalid("link to a directory")),
            FileType::Symlink => {
                let link = fs::readlinkat(&lower.dir, name, Vec::new())?;
                self.create(dir, name, |fd| fs::symlinkat(&link, fd, name))?;
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut source = File::from(fs::openat(&lower.dir, name, flags, Mode::empty())?);
                // A small archive could demand many copies of a large file.
                self.budget.count_copy(source.metadata()?.len())?;
                let mut target = File::from(self.create_file(dir, name)?);
                io::copy(&mut source, &mut target)?;
                Attributes::read(&lower.stat, Some(&source))?.apply(&target)?;
                return Ok(Some(()));
            }
            _ => {
                let device = lower.stat.st_rdev;
                self.create(dir, name, |fd| fs::mknodat(fd, name, node, attributes.mode(), device))?;
            }
        }
        attributes.apply_at(&dir.fd, name, node == FileType::Symlink).map(Some)
    }
}

/// Writes a part of a file. Long runs of zeros become holes.
fn write(file: &File, chunk: Chunk, data: &mut impl BufRead) -> io::Result<()> {
    let Chunk { mut offset, mut length } = chunk;
    while length > 0 {
        let part = data.fill_buf()?;
        let n = part.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        let part = part.get(..n).filter(|part| !part.is_empty()).ok_or(io::ErrorKind::UnexpectedEof)?;
        for piece in part.chunks(HOLE) {
            if piece.len() < HOLE || piece.iter().any(|b| *b != 0) {
                file.write_all_at(piece, offset)?;
            }
            offset += piece.len() as u64;
        }
        length -= n as u64;
        data.consume(n);
    }
    Ok(())
}
