//! Encoded bytes of an object version, and their template.

use crate::Revision;
use bytes::{BufMut, Bytes, BytesMut};
use std::ops::Deref;

/// Bytes of a write with a placeholder for its revision in decimal digits, which is assigned at commit.
#[derive(Clone, Debug)]
pub struct Template {
    text: Vec<u8>,
    revision_at: Option<usize>,
}

impl Template {
    /// Creates a template; the revision is inserted at this offset, at most at the end.
    #[must_use]
    pub fn new(text: Vec<u8>, revision_at: usize) -> Self {
        let revision_at = Some(revision_at.min(text.len()));
        Self { text, revision_at }
    }

    /// Returns the bytes without the revision.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }
}

/// Creates a template without a revision.
impl<T: Into<Vec<u8>>> From<T> for Template {
    fn from(text: T) -> Self {
        Self { text: text.into(), revision_at: None }
    }
}

/// Bytes of one object version, immutable and shared.
///
/// The version's revisions precede them in the same allocation: an engine stores all of it, so that an object's bytes
/// are written and copied once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data(Bytes);

impl Data {
    /// Header size: two revisions of 64 bits, little endian. Part of the on-disk format, so it must never change.
    const HEADER: usize = 16;

    /// Fills in a template at the revision of its write.
    #[must_use]
    pub fn new(revision: Revision, create_revision: Revision, template: &Template) -> Self {
        let digits = template.revision_at.map(|at| (at, revision.to_string()));
        let (at, digits) = digits.unwrap_or_default();
        let (before, after) = template.text.split_at(at);
        // The exact capacity: an allocation that grows may be twice as large.
        let mut entry = BytesMut::with_capacity(Self::HEADER + template.text.len() + digits.len());
        entry.put_u64_le(revision);
        entry.put_u64_le(create_revision);
        for part in [before, digits.as_bytes(), after] {
            entry.put_slice(part);
        }
        Self(entry.freeze())
    }

    /// Parses a stored entry; returns the revision and the revision of creation, too. `None` if it is invalid.
    pub(crate) fn from_entry(entry: &[u8]) -> Option<(Self, Revision, Revision)> {
        let (revision, rest) = entry.split_first_chunk()?;
        let (create_revision, _) = rest.split_first_chunk()?;
        let (revision, create_revision) = (u64::from_le_bytes(*revision), u64::from_le_bytes(*create_revision));
        Some((Self(Bytes::copy_from_slice(entry)), revision, create_revision))
    }

    /// Returns the entry to store: header and bytes.
    pub(crate) fn entry(&self) -> &Bytes {
        &self.0
    }

    /// Returns the bytes without a copy.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.0.slice(Self::HEADER..)
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[Self::HEADER..]
    }
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_filled_in_with_the_revision() {
        for (template, expected) in [
            (Template::new(b"[]".to_vec(), 1), "[70]"),
            (Template::new(b"[]".to_vec(), 0), "70[]"),
            (Template::new(b"[]".to_vec(), 9), "[]70"),
            (Template::from("[]"), "[]"),
            (Template::from(""), ""),
        ] {
            let data = Data::new(70, 7, &template);
            assert_eq!((&*data, data.bytes()), (expected.as_bytes(), Bytes::from(expected)), "{template:?}");
            assert_eq!(Data::from_entry(data.entry()), Some((data.clone(), 70, 7)));
        }
        assert_eq!(Data::from_entry(&[0; 15]), None);
    }
}
