//! How objects and the head are written: format 1.
//!
//! | entry | key | value |
//! | --- | --- | --- |
//! | object | length of resource, length of namespace (u16, big endian), resource, namespace, name | revision, create revision (u64), data |
//! | head | `ff ff` `head` (no resource is that long) | sequence, revision, objects, digest (u64) |
//!
//! Numbers in values are little endian.

use crate::{Head, Key, Record};
use std::sync::Arc;

/// Key of the head, which every batch writes.
pub(super) const HEAD_KEY: &[u8] = b"\xff\xffhead";

pub(super) const HEAD_BYTES: usize = 32;

/// Encodes a key; `None` if it is longer than the format allows; [`Key::MAX_BYTES`] is far below that.
pub(super) fn encode_key(key: &Key) -> Option<Vec<u8>> {
    let resource = u16::try_from(key.resource.len()).ok()?;
    let namespace = u16::try_from(key.namespace.len()).ok()?;
    let mut out = Vec::with_capacity(4 + key.bytes());
    out.extend_from_slice(&resource.to_be_bytes());
    out.extend_from_slice(&namespace.to_be_bytes());
    for part in [&key.resource, &key.namespace, &key.name] {
        out.extend_from_slice(part.as_bytes());
    }
    Some(out)
}

/// Decodes an object; `None` if it is invalid.
pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<Record> {
    let (resource_len, rest) = key.split_first_chunk::<2>()?;
    let (namespace_len, rest) = rest.split_first_chunk::<2>()?;
    let (resource, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*resource_len)))?;
    let (namespace, name) = rest.split_at_checked(usize::from(u16::from_be_bytes(*namespace_len)))?;
    let text = |bytes| std::str::from_utf8(bytes).ok().map(Arc::<str>::from);
    let key = Key { resource: text(resource)?, namespace: text(namespace)?, name: text(name)? };
    Record::from_entry(key, value)
}

pub(super) fn encode_head(head: &Head) -> [u8; HEAD_BYTES] {
    let mut out = [0; HEAD_BYTES];
    let fields = [head.sequence, head.revision, head.objects, head.digest];
    for (slot, field) in out.chunks_exact_mut(8).zip(fields) {
        slot.copy_from_slice(&field.to_le_bytes());
    }
    out
}

/// Decodes a head; `None` if it is invalid.
pub(super) fn decode_head(value: &[u8]) -> Option<Head> {
    let mut fields = [0; 4];
    if value.len() != HEAD_BYTES {
        return None;
    }
    for (field, bytes) in fields.iter_mut().zip(value.chunks_exact(8)) {
        *field = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    let [sequence, revision, objects, digest] = fields;
    Some(Head { sequence, revision, objects, digest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Template;

    #[test]
    fn encoded_entries_round_trip() {
        for (resource, namespace, name) in [("pods", "default", "web"), ("nodes", "", "n\0ode"), ("", "", "")] {
            let key = Key::new(resource, namespace, name);
            let record = Record::new(key, 7, 3, &Template::from("{}"));
            let key = encode_key(&record.key).unwrap();
            assert_eq!(decode(&key, record.data.entry()), Some(record));
        }
        let head = Head { sequence: 1, revision: u64::MAX, objects: 3, digest: 4 };
        assert_eq!(decode_head(&encode_head(&head)), Some(head));
    }

    #[test]
    fn truncated_entry_is_not_decoded() {
        let record = Record::new(Key::new("pods", "a", "b"), 1, 1, &Template::from(""));
        let (key, value) = (encode_key(&record.key).unwrap(), record.data.entry());
        assert!((0..key.len() - 1).all(|len| decode(&key[..len], value).is_none()));
        assert!((0..value.len()).all(|len| decode(&key, &value[..len]).is_none()));
        assert_eq!(decode_head(&[0; 31]), None);
    }
}
