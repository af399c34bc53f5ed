//! Maps of sparse files: GNU's old format, and versions 0.0, 0.1 and 1.0 in PAX records.

use super::header::{self, GNU_IS_EXTENDED, GNU_REAL_SIZE, GNU_SPARSE, Header};
use crate::error::invalid;
use std::io::{self, BufRead, Read};

/// Maximum number of parts of a sparse file: 16 MB of memory.
pub(super) const MAX_CHUNKS: usize = 1 << 20;

/// Maximum number of digits of a number in a map.
const MAX_DIGITS: usize = 20;

/// Part of a sparse file that is not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Checks that the parts are ascending, within the file, and as long as the data.
pub(super) fn check(size: u64, chunks: &[Chunk], data: u64) -> io::Result<()> {
    let mut end = 0;
    let mut sum: u64 = 0;
    for chunk in chunks {
        let next = chunk.offset.checked_add(chunk.length);
        end = next.filter(|next| chunk.offset >= end && *next <= size).ok_or_else(malformed)?;
        sum = sum.saturating_add(chunk.length);
    }
    if sum == data { Ok(()) } else { Err(malformed()) }
}

/// Reads the map of GNU's old format: in the header, and in blocks between header and data.
pub(super) fn read_gnu(header: &Header, source: &mut impl Read) -> io::Result<(u64, Vec<Chunk>)> {
    let size = header::size(&header.block[GNU_REAL_SIZE])?;
    let mut chunks = Vec::new();
    let mut is_extended = header.block[GNU_IS_EXTENDED] != 0;
    add_gnu(&header.block[GNU_SPARSE], &mut chunks)?;
    while is_extended {
        let block = super::read_block(source)?;
        // 21 parts.
        add_gnu(&block[..504], &mut chunks)?;
        is_extended = block[504] != 0;
    }
    Ok((size, chunks))
}

fn add_gnu(map: &[u8], chunks: &mut Vec<Chunk>) -> io::Result<()> {
    let (parts, _) = map.as_chunks::<24>();
    // An empty field ends the map.
    for part in parts.iter().take_while(|part| part[0] != 0) {
        chunks.push(Chunk { offset: header::size(&part[..12])?, length: header::size(&part[12..])? });
        if chunks.len() > MAX_CHUNKS {
            return Err(malformed());
        }
    }
    Ok(())
}

/// Reads the map of version 1.0: lines with the number of parts, and each part's offset and length. Returns its length.
pub(super) fn read_1_0(source: &mut impl BufRead) -> io::Result<(Vec<Chunk>, u64)> {
    let mut length = 0;
    let count = line(source, &mut length)?;
    if count > MAX_CHUNKS as u64 {
        return Err(malformed());
    }
    let mut chunks = Vec::new();
    for _ in 0..count {
        chunks.push(Chunk { offset: line(source, &mut length)?, length: line(source, &mut length)? });
    }
    Ok((chunks, length))
}

fn line(source: &mut impl BufRead, length: &mut u64) -> io::Result<u64> {
    let mut line = Vec::new();
    source.by_ref().take(MAX_DIGITS as u64 + 1).read_until(b'\n', &mut line)?;
    *length += line.len() as u64;
    let digits = line.strip_suffix(b"\n").and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(malformed)
}

fn malformed() -> io::Error {
    invalid("archive/tar: invalid map of a sparse file")
}
