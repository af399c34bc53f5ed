//! PAX records: attributes that the header has no room for.

use super::sparse::{Chunk, MAX_CHUNKS};
use crate::error::invalid;
use std::io;

/// Begin of the names of extended attributes.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// Records of a PAX header.
#[derive(Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link_path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Name of a sparse file; its header has another one.
    pub(super) sparse_name: Option<Vec<u8>>,
    pub(super) sparse_size: Option<u64>,
    /// Whether the map precedes the data.
    pub(super) is_sparse_1_0: bool,
    /// Map of versions 0.0 and 0.1.
    pub(super) sparse_chunks: Vec<Chunk>,
}

impl Pax {
    /// Parses records of the form `<length> <key>=<value>\n`. Values may contain line breaks.
    pub(super) fn parse(mut data: &[u8]) -> io::Result<Self> {
        let mut pax = Self::default();
        while !data.is_empty() {
            let (record, rest) = split_record(data).ok_or_else(malformed)?;
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(malformed)?;
            pax.add(&record[..equals], &record[equals + 1..])?;
            data = rest;
        }
        Ok(pax)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if let Some(name) = key.strip_prefix(XATTR) {
            self.xattrs.push((name.to_vec(), value.to_vec()));
            return Ok(());
        }
        match key {
            b"path" => self.path = text(value)?,
            b"linkpath" => self.link_path = text(value)?,
            b"size" => self.size = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.mtime = Some(time(value).ok_or_else(malformed)?),
            b"GNU.sparse.major" => self.is_sparse_1_0 = value == b"1",
            b"GNU.sparse.name" => self.sparse_name = text(value)?,
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse_size = Some(number(value)?),
            b"GNU.sparse.offset" => self.sparse_chunks.push(Chunk { offset: number(value)?, length: 0 }),
            b"GNU.sparse.numbytes" => self.sparse_chunks.last_mut().ok_or_else(malformed)?.length = number(value)?,
            b"GNU.sparse.map" => self.sparse_chunks = chunks(value)?,
            _ => {}
        }
        if self.sparse_chunks.len() > MAX_CHUNKS {
            return Err(malformed());
        }
        Ok(())
    }
}

/// Returns the first record without its length and line break, and the rest.
fn split_record(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = data.iter().position(|b| *b == b' ')?;
    let length: usize = std::str::from_utf8(&data[..space]).ok()?.parse().ok()?;
    let record = data.get(space + 1..length)?;
    Some((record.strip_suffix(b"\n")?, &data[length..]))
}

/// An empty value means the value of the header.
fn text(value: &[u8]) -> io::Result<Option<Vec<u8>>> {
    if value.contains(&0) {
        return Err(malformed());
    }
    Ok(Some(value.to_vec()).filter(|value| !value.is_empty()))
}

fn number(value: &[u8]) -> io::Result<u64> {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or_else(malformed)
}

/// Parses seconds with an optional fraction: `1350244992.023960108`.
fn time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = seconds.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    // Before 1970, the fraction counts backwards.
    if seconds.starts_with('-') && nanoseconds > 0 {
        return Some((whole.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((whole, nanoseconds))
}

/// Parses `offset,length,offset,length`.
fn chunks(value: &[u8]) -> io::Result<Vec<Chunk>> {
    let numbers: Vec<u64> = value.split(|b| *b == b',').map(number).collect::<Result<_, _>>()?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(malformed());
    }
    Ok(pairs.iter().map(|[offset, length]| Chunk { offset: *offset, length: *length }).collect())
}

fn malformed() -> io::Error {
    invalid("archive/tar: invalid PAX record")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_contain_line_breaks() {
        let pax = Pax::parse(b"29 SCHILY.xattr.user.a=\n=\n\n\x00\n12 path=a/b\n15 mtime=-1.25\n").unwrap();
        assert_eq!(pax.xattrs, [(b"user.a".to_vec(), b"\n=\n\n\0".to_vec())]);
        assert_eq!((pax.path.as_deref(), pax.mtime), (Some(&b"a/b"[..]), Some((-2, 750_000_000))));
    }

    #[test]
    fn malformed_records_are_errors() {
        for record in [
            "x",
            "9 path=a",
            "7 path=a\n",
            "99 path=a\n",
            " path=a\n",
            "5 ab\n",
            "10 size=-1\n",
            "3 \n",
            "0 a=b\n",
            "18446744073709551616 a=b\n",
            "14 path=a\0b\n\n",
            "11 mtime=x\n",
            "12 mtime=1.x\n",
            "26 GNU.sparse.map=0,1,2\n",
            "25 GNU.sparse.numbytes=1\n",
        ] {
            Pax::parse(record.as_bytes()).unwrap_err();
        }
    }
}
