//! Reads tar archives as a stream, with bounded memory: old, ustar, PAX and GNU formats, and sparse files.
//!
//! The `tar` crate reads extended headers of any length into memory, and splits attributes that contain line breaks. The
//! formats are those of Go's `archive/tar`, which Docker and containerd read layers with.

mod header;
mod pax;
mod sparse;

use crate::error::invalid;
use header::Header;
use pax::Pax;
pub(crate) use sparse::Chunk;
use std::io::{self, BufRead, Read};

/// Size of a tar block in bytes.
const BLOCK: usize = 512;

/// Maximum size of an extended header in bytes, as Go's (`maxSpecialFileSize`).
const MAX_EXTENDED_HEADER: u64 = 1 << 20;

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
}

/// Entry of an archive, without its data. Nothing is checked but the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    /// Target of a link.
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Modification time: seconds and nanoseconds since 1970.
    pub(crate) mtime: (i64, u32),
    /// Number of data bytes in the archive.
    pub(crate) size: u64,
    /// Extended attributes.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Size of a sparse file and the parts that its data bytes fill.
    pub(crate) sparse: Option<(u64, Vec<Chunk>)>,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
}

/// Reader of an archive. As a `Read`, it is the data of the current entry.
pub(crate) struct TarReader<R> {
    source: R,
    /// Data bytes of the current entry that have not been read.
    left: u64,
    /// Bytes after the data, up to the next block.
    padding: u64,
}

impl<R: BufRead> TarReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, left: 0, padding: 0 }
    }

    /// Returns the source, after the end of the archive.
    pub(crate) fn into_inner(self) -> R {
        self.source
    }

    /// Skips the rest of the current entry, and reads the next one. Returns `None` at the end of the archive.
    pub(crate) fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let (mut pax, mut long_path, mut long_link) = (Pax::default(), None, None);
        loop {
            let Some(header) = self.next_header()? else { return Ok(None) };
            self.begin_data(header.size)?;
            match header.type_flag {
                b'x' | b'X' => pax = Pax::parse(&self.extended_header()?)?,
                // Go ignores global headers, too.
                b'g' => {}
                b'L' => long_path = Some(until_nul(self.extended_header()?)),
                b'K' => long_link = Some(until_nul(self.extended_header()?)),
                _ => return self.entry(&header, pax, long_path, long_link).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &Header,
        pax: Pax,
        long_path: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> io::Result<Entry> {
        if let Some(size) = pax.size.filter(|_| header.has_data()) {
            self.begin_data(size)?;
        }
        let path = pax.sparse_name.or(pax.path).or(long_path).unwrap_or_else(|| header.path.clone());
        let kind = header.kind(path.ends_with(b"/"))?;
        let mut sparse = None;
        if header.type_flag == b'S' {
            sparse = Some(sparse::read_gnu(header, &mut self.source)?);
        } else if let Some(size) = pax.sparse_size {
            let chunks = if pax.is_sparse_1_0 { self.sparse_map()? } else { pax.sparse_chunks };
            sparse = Some((size, chunks));
        }
        if kind != Kind::File {
            sparse = None;
        }
        if let Some((size, chunks)) = &sparse {
            sparse::check(*size, chunks, self.left)?;
        }
        let id = |pax: Option<u64>, header: i64| {
            let id = pax.map_or_else(|| u32::try_from(header), u32::try_from).ok();
            // The largest number means no change to the kernel.
            id.filter(|id| *id != u32::MAX).ok_or_else(|| invalid("an owner exceeds 32 bits"))
        };
        Ok(Entry {
            link: pax.link_path.or(long_link).unwrap_or_else(|| header.link.clone()),
            path,
            kind,
            mode: header.mode,
            uid: id(pax.uid, header.uid)?,
            gid: id(pax.gid, header.gid)?,
            mtime: pax.mtime.unwrap_or((header.mtime, 0)),
            size: self.left,
            xattrs: pax.xattrs,
            sparse,
            device: header.device,
        })
    }

    /// Reads the map of a sparse file of PAX version 1.0, which precedes the data.
    fn sparse_map(&mut self) -> io::Result<Vec<Chunk>> {
        let (chunks, length) = sparse::read_1_0(&mut *self)?;
        let rest = length.next_multiple_of(BLOCK as u64) - length;
        skip(&mut *self, rest)?;
        Ok(chunks)
    }

    fn begin_data(&mut self, size: u64) -> io::Result<()> {
        let end = size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| invalid("an entry is too large"))?;
        (self.left, self.padding) = (size, end - size);
        Ok(())
    }

    /// Reads the data of an extended header.
    fn extended_header(&mut self) -> io::Result<Vec<u8>> {
        if self.left > MAX_EXTENDED_HEADER {
            return Err(invalid(format!("an extended header has more than {MAX_EXTENDED_HEADER} bytes")));
        }
        let mut data = Vec::new();
        self.read_to_end(&mut data)?;
        Ok(data)
    }

    /// Reads the next header. Zeros, or the end of the stream, end the archive.
    fn next_header(&mut self) -> io::Result<Option<Header>> {
        let left = self.left;
        skip(&mut *self, left)?;
        let padding = std::mem::take(&mut self.padding);
        skip(&mut self.source, padding)?;
        if self.source.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let block = read_block(&mut self.source)?;
        if block.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        Header::parse(&block).map(Some)
    }
}

impl<R: BufRead> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let part = self.fill_buf()?;
        let n = part.len().min(buffer.len());
        buffer[..n].copy_from_slice(&part[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl<R: BufRead> BufRead for TarReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let part = self.source.fill_buf()?;
        if part.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(part.len());
        Ok(&part[..n])
    }

    fn consume(&mut self, n: usize) {
        self.left = self.left.saturating_sub(n as u64);
        self.source.consume(n);
    }
}

/// Reads what follows the end of an archive.
pub(crate) fn drain(mut source: impl BufRead) -> io::Result<()> {
    loop {
        let n = source.fill_buf()?.len();
        if n == 0 {
            return Ok(());
        }
        source.consume(n);
    }
}

/// Reads a block.
fn read_block(source: &mut impl Read) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    source.read_exact(&mut block).map_err(|error| match error.kind() {
        // Without the text of `read_exact`.
        io::ErrorKind::UnexpectedEof => io::ErrorKind::UnexpectedEof.into(),
        _ => error,
    })?;
    Ok(block)
}

/// Skips exactly `n` bytes.
fn skip(source: &mut impl BufRead, mut n: u64) -> io::Result<()> {
    while n > 0 {
        let part = source.fill_buf()?.len();
        if part == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let part = usize::try_from(n).unwrap_or(usize::MAX).min(part);
        source.consume(part);
        n -= part as u64;
    }
    Ok(())
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(text.iter().position(|b| *b == 0).unwrap_or(text.len()));
    text
}

#[cfg(test)]
mod tests;
