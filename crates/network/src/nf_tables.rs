//! Elements of nftables sets and maps, and removal of tables, over netlink.
//!
//! The program nft takes some milliseconds for each transaction, and takes longer the more rules there are. Tables,
//! chains and rules are created by nft; what changes with each Pod is elements. No library with a suitable license
//! encodes them without a C library.

use crate::{
    Error,
    netlink_socket::{Answer, FLAG_ACK, Message, Socket},
};
use parking_lot::Mutex;
use rtnetlink::sys::protocols::NETLINK_NETFILTER;
use std::{io, sync::Arc};

/// Messages in a transaction: the acknowledgements must fit in the socket's buffer.
const MAX_BATCH: usize = 64;

// include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h.
const SUBSYSTEM: u8 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const DELETE_TABLE: u8 = 2;
const NEW_ELEMENT: u8 = 12;
const DELETE_ELEMENT: u8 = 14;
const FLAG_CREATE: u16 = 0x400;
const NESTED: u16 = 0x8000;
const TABLE_NAME: u16 = 1;
const LIST_TABLE: u16 = 1;
const LIST_SET: u16 = 2;
const LIST_ELEMENTS: u16 = 3;
const LIST_ELEMENT: u16 = 1;
const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;

/// Family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Ip = 2,
    Bridge = 7,
    Ip6 = 10,
}

/// Element of a set, or of a map with `data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) family: Family,
    pub(crate) table: String,
    pub(crate) set: &'static str,
    pub(crate) key: Vec<u8>,
    pub(crate) data: Option<Vec<u8>>,
}

/// Error of a transaction.
#[derive(Debug)]
pub(crate) struct ElementError {
    /// Index of the element that was refused, if it was one.
    pub(crate) index: Option<usize>,
    pub(crate) source: io::Error,
}

impl ElementError {
    /// Returns whether a table, a set, or an element to delete does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Returns whether the map has the key with other data.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists)
    }
}

/// Socket of nf_tables, opened when it is needed. Clones share it.
///
/// It stays open: closing one waits until the kernel has freed what earlier transactions replaced, some 10 ms.
#[derive(Debug, Clone, Default)]
pub(crate) struct ElementSocket(Arc<Mutex<Option<Socket>>>);

/// The socket is no part of a network's identity.
impl PartialEq for ElementSocket {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ElementSocket {}

impl ElementSocket {
    /// Adds elements; existing ones stay. A transaction has at most [`MAX_BATCH`] elements: after an error, those of
    /// earlier transactions are deleted, the ones that had existed, too.
    pub(crate) fn add(&self, elements: &[Element]) -> Result<(), ElementError> {
        self.with_socket(|socket| add(socket, elements))
    }

    /// Deletes elements; missing ones are not an error.
    pub(crate) fn delete(&self, elements: &[Element]) -> Result<(), ElementError> {
        self.with_socket(|socket| delete(socket, elements))
    }

    fn with_socket<T>(&self, work: impl FnOnce(&mut Socket) -> Result<T, ElementError>) -> Result<T, ElementError> {
        let mut kept = self.0.lock();
        let mut socket = match kept.take() {
            Some(socket) => socket,
            None => Socket::open(NETLINK_NETFILTER).map_err(|source| ElementError { index: None, source })?,
        };
        let result = work(&mut socket);
        // After another error, answers may be pending.
        if result.as_ref().is_ok() || result.as_ref().is_err_and(|error| error.index.is_some()) {
            *kept = Some(socket);
        }
        result
    }
}

/// Removes tables with all that they contain, in one transaction; missing ones are not an error.
///
/// # Errors
/// If the kernel has no nf_tables, or refuses to remove one. The others are removed nevertheless.
pub(crate) async fn remove_tables(tables: &[(Family, &str)]) -> Result<(), Error> {
    let messages = tables.iter().map(|(family, name)| table_removal(*family, name)).collect();
    let removal = tokio::task::spawn_blocking(move || remove(messages));
    let removed = removal.await.map_err(io::Error::from).flatten();
    removed.map_err(|source| Error::Kernel { doing: "remove nftables tables".into(), source })
}

fn table_removal(family: Family, name: &str) -> Message {
    let body = [header(family as u8, 0), attribute(TABLE_NAME, &text(name))].concat();
    Message { kind: u16::from_be_bytes([SUBSYSTEM, DELETE_TABLE]), flags: FLAG_ACK, body }
}

/// Commits removals; the first transaction finds out which ones are possible.
fn remove(mut messages: Vec<Message>) -> io::Result<()> {
    let mut socket = Socket::open(NETLINK_NETFILTER)?;
    let mut refused = None;
    while !messages.is_empty() {
        let answers = commit(&mut socket, &messages)?;
        if answers.iter().all(Result::is_ok) {
            break;
        }
        let mut is_possible = answers.iter().map(Result::is_ok);
        messages.retain(|_| is_possible.next().unwrap_or_default());
        let mut errors = answers.into_iter().filter_map(Result::err);
        refused = refused.or_else(|| errors.find(|error| error.kind() != io::ErrorKind::NotFound));
    }
    refused.map_or(Ok(()), Err)
}

/// Joins the parts of a key or of data: each is padded to four bytes.
pub(crate) fn concatenate(parts: &[&[u8]]) -> Vec<u8> {
    let mut joined = Vec::new();
    for part in parts {
        joined.extend(*part);
        joined.resize(joined.len().next_multiple_of(4), 0);
    }
    joined
}

/// Returns an interface's name as part of a key.
pub(crate) fn interface_name(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    padded.iter_mut().zip(name.bytes().take(15)).for_each(|(to, from)| *to = from);
    padded
}

fn add(socket: &mut Socket, elements: &[Element]) -> Result<(), ElementError> {
    for (number, batch) in elements.chunks(MAX_BATCH).enumerate() {
        if let Err(mut error) = change(socket, NEW_ELEMENT, batch) {
            let added = number * MAX_BATCH;
            if let Err(error) = delete(socket, elements.get(..added).unwrap_or_default()) {
                tracing::warn!(error = %error.source, "failed to delete nftables elements again");
            }
            error.index = error.index.map(|index| added + index);
            return Err(error);
        }
    }
    Ok(())
}

fn delete(socket: &mut Socket, elements: &[Element]) -> Result<(), ElementError> {
    for batch in elements.chunks(MAX_BATCH) {
        match change(socket, DELETE_ELEMENT, batch) {
            // The transaction failed as a whole.
            Err(error) if error.is_missing() => {
                for element in batch {
                    match change(socket, DELETE_ELEMENT, std::slice::from_ref(element)) {
                        Err(error) if !error.is_missing() => return Err(error),
                        _ => {}
                    }
                }
            }
            other => other?,
        }
    }
    Ok(())
}

fn change(socket: &mut Socket, verb: u8, elements: &[Element]) -> Result<(), ElementError> {
    let flags = FLAG_ACK | if verb == NEW_ELEMENT { FLAG_CREATE } else { 0 };
    let kind = u16::from_be_bytes([SUBSYSTEM, verb]);
    let messages: Vec<_> = elements.iter().map(|element| Message { kind, flags, body: body(element) }).collect();
    let answers = commit(socket, &messages).map_err(|source| ElementError { index: None, source })?;
    let refused = answers.into_iter().enumerate().find_map(|(n, answer)| Some((n, answer.err()?)));
    refused.map_or(Ok(()), |(n, source)| Err(ElementError { index: Some(n), source }))
}

/// Runs a transaction, which has no effect if a change is refused. Returns an answer to each change.
fn commit(socket: &mut Socket, changes: &[Message]) -> io::Result<Vec<Answer>> {
    let limit = |kind| Message { kind, flags: 0, body: header(0, u16::from(SUBSYSTEM)) };
    let messages = [&[limit(BATCH_BEGIN)], changes, &[limit(BATCH_END)]].concat();
    let answers = socket.exchange(&messages)?;
    Ok(answers.into_iter().skip(1).take(changes.len()).collect())
}

/// Encodes `struct nfgenmsg`.
fn header(family: u8, resource: u16) -> Vec<u8> {
    let [high, low] = resource.to_be_bytes();
    vec![family, 0, high, low]
}

/// Encodes a string, which ends with a zero byte.
fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn body(element: &Element) -> Vec<u8> {
    let value = |value: &[u8]| attribute(DATA_VALUE, value);
    let data = element.data.as_ref().map(|data| attribute(ELEMENT_DATA | NESTED, &value(data)));
    let item = [attribute(ELEMENT_KEY | NESTED, &value(&element.key)), data.unwrap_or_default()].concat();
    [
        header(element.family as u8, 0),
        attribute(LIST_TABLE, &text(&element.table)),
        attribute(LIST_SET, &text(element.set)),
        attribute(LIST_ELEMENTS | NESTED, &attribute(LIST_ELEMENT | NESTED, &item)),
    ]
    .concat()
}

/// Encodes an attribute. Values are short: names, keys and addresses.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len().saturating_add(4)).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        command::{find, run},
        destroy::real_tests::in_own_namespaces,
        nft,
    };

    #[test]
    fn only_named_tables_are_removed_with_their_contents() {
        in_own_namespaces(async || {
            if find("nft").is_none() {
                println!("skipped: nft is missing");
                return;
            }
            let script = "add table ip a
                add set ip a s { type ipv4_addr; elements = { 10.0.0.1 } }
                add chain ip a b { type filter hook input priority 0; }
                add chain ip a c
                add rule ip a b ip saddr @s jump c
                add table ip6 a
                add table ip stays";
            nft::apply(script).await.expect("tables");
            // Again, when they do not exist.
            for _ in 0..2 {
                let tables = [(Family::Bridge, "a"), (Family::Ip6, "a"), (Family::Ip, "a"), (Family::Ip, "missing")];
                remove_tables(&tables).await.expect("no error");
                assert_eq!(run("nft", &["list", "tables"], "").await.expect("a list"), "table ip stays\n");
            }
        });
    }

    #[test]
    fn parts_of_a_key_are_padded() {
        assert_eq!(concatenate(&[&[6], &80_u16.to_be_bytes()]), [6, 0, 0, 0, 0, 80, 0, 0]);
        assert_eq!(concatenate(&[&[1, 2, 3, 4]]), [1, 2, 3, 4]);
        assert_eq!(interface_name("veth1"), *b"veth1\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(interface_name("0123456789abcdefgh"), *b"0123456789abcde\0");
    }

    #[test]
    fn attributes_have_length_kind_and_padding() {
        assert_eq!(attribute(3, b"ab"), [[6, 0], [3, 0], *b"ab", [0, 0]].concat());
    }
}
