//! A block with the fields of an entry.

use super::{BLOCK, Kind, until_nul};
use crate::error::invalid;
use std::{io, ops::Range};

/// Offsets of the fields.
const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const TYPE_FLAG: usize = 156;
const LINK: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
const MAJOR: Range<usize> = 329..337;
const MINOR: Range<usize> = 337..345;
const PREFIX: Range<usize> = 345..500;
/// Maps of sparse files in headers of GNU's format.
pub(super) const GNU_SPARSE: Range<usize> = 386..482;
pub(super) const GNU_IS_EXTENDED: usize = 482;
pub(super) const GNU_REAL_SIZE: Range<usize> = 483..495;

/// Permission bits, with set-user-ID, set-group-ID and sticky.
const MODE_BITS: u32 = 0o7777;

/// Fields of a header.
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: i64,
    pub(super) gid: i64,
    pub(super) size: u64,
    pub(super) mtime: i64,
    pub(super) type_flag: u8,
    pub(super) device: (u32, u32),
    /// The whole block.
    pub(super) block: [u8; BLOCK],
}

impl Header {
    pub(super) fn parse(block: &[u8; BLOCK]) -> io::Result<Self> {
        check_sum(block)?;
        let text = |range: Range<usize>| until_nul(block[range].to_vec());
        let mut path = text(NAME);
        let is_ustar = block[MAGIC] == *b"ustar\x0000";
        let is_gnu = block[MAGIC] == *b"ustar  \0";
        let prefix = text(PREFIX);
        if is_ustar && !prefix.is_empty() {
            path = [&prefix[..], b"/", &path].concat();
        }
        let type_flag = block[TYPE_FLAG];
        let device = if matches!(type_flag, b'3' | b'4') && (is_ustar || is_gnu) {
            let number = |range: Range<usize>| u32::try_from(number(&block[range])?).map_err(|_| malformed());
            (number(MAJOR)?, number(MINOR)?)
        } else {
            (0, 0)
        };
        Ok(Self {
            path,
            link: text(LINK),
            mode: u32::try_from(number(&block[MODE])? & i64::from(MODE_BITS)).map_err(|_| malformed())?,
            uid: number(&block[UID])?,
            gid: number(&block[GID])?,
            // Only these types have data; others may have a size that means something else.
            size: if has_data(type_flag) { size(&block[SIZE])? } else { 0 },
            mtime: number(&block[MTIME])?,
            type_flag,
            device,
            block: *block,
        })
    }

    /// Returns whether data follows.
    pub(super) fn has_data(&self) -> bool {
        has_data(self.type_flag)
    }

    /// Returns the type. A file whose name ends with a slash is a directory in the oldest format.
    pub(super) fn kind(&self, ends_with_slash: bool) -> io::Result<Kind> {
        Ok(match self.type_flag {
            b'0' | 0 if ends_with_slash => Kind::Directory,
            b'0' | 0 | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::CharDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => return Err(invalid(format!("unhandled tar header type {other}"))),
        })
    }
}

fn has_data(type_flag: u8) -> bool {
    !(b'1'..=b'6').contains(&type_flag)
}

/// The sum of all bytes, with spaces in place of the sum. Old programs sum signed bytes.
fn check_sum(block: &[u8; BLOCK]) -> io::Result<()> {
    let stored = number(&block[CHECKSUM])?;
    let bytes = || block.iter().enumerate().map(|(at, b)| if CHECKSUM.contains(&at) { b' ' } else { *b });
    let unsigned: i64 = bytes().map(i64::from).sum();
    let signed: i64 = bytes().map(|b| i64::from(b.cast_signed())).sum();
    if stored == unsigned || stored == signed { Ok(()) } else { Err(malformed()) }
}

/// Parses a number: octal digits, or big-endian with the highest bit set.
pub(super) fn number(field: &[u8]) -> io::Result<i64> {
    match field.first() {
        Some(first) if first & 0x80 != 0 => {
            // The second bit is the sign.
            let begin: i64 = if first & 0x40 == 0 { 0 } else { -1 };
            let bytes =
                std::iter::once(if begin == 0 { first & 0x7f } else { *first }).chain(field[1..].iter().copied());
            bytes
                .skip(usize::from(begin != 0))
                .try_fold(begin, |value, byte| value.checked_mul(256)?.checked_add(i64::from(byte)))
        }
        _ => {
            let text = std::str::from_utf8(field).map_err(|_| malformed())?;
            let digits = text.trim_matches(|c| c == ' ' || c == '\0').split('\0').next().unwrap_or_default();
            if digits.is_empty() { Some(0) } else { i64::from_str_radix(digits, 8).ok() }
        }
    }
    .ok_or_else(malformed)
}

/// Parses a number of bytes.
pub(super) fn size(field: &[u8]) -> io::Result<u64> {
    u64::try_from(number(field)?).map_err(|_| malformed())
}

/// Go's text.
fn malformed() -> io::Error {
    invalid("archive/tar: invalid tar header")
}
