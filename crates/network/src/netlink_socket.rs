//! Blocking netlink socket, for threads that enter a Pod's network namespace.
//!
//! [`crate::links`] is asynchronous, and works in the node's namespace. A socket keeps the namespace in which it was
//! opened.

use nix::sys::{
    socket::{setsockopt, sockopt::ReceiveTimeout},
    time::{TimeVal, TimeValLike},
};
use rtnetlink::sys;
use std::io;

/// Seconds until a request without an answer fails. The kernel answers at once, except while others hold its lock.
const TIMEOUT: i64 = 30;
/// Size of the receive buffer: the kernel never sends more at once, except for dumps.
const BUFFER_SIZE: usize = 64 * 1024;

const HEADER_LENGTH: usize = 16;
/// Answer with an error code; zero is an acknowledgement (`NLMSG_ERROR`).
const ERROR: u16 = 2;
const FLAG_REQUEST: u16 = 1;
/// Requests an acknowledgement (`NLM_F_ACK`).
pub(crate) const FLAG_ACK: u16 = 4;

/// Netlink message without sequence number.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) body: Vec<u8>,
}

/// Answer to a message: the body of the last reply, or the kernel's error.
pub(crate) type Answer = io::Result<Vec<u8>>;

#[derive(Debug)]
pub(crate) struct Socket {
    socket: sys::Socket,
    sequence: u32,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = sys::Socket::new(protocol)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(TIMEOUT))?;
        // Errors do not repeat the request.
        socket.set_cap_ack(true)?;
        socket.bind_auto()?;
        socket.connect(&sys::SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 1 })
    }

    /// Sends messages at once; the kernel handles them in order. Waits for the acknowledgements, and returns an answer
    /// to each message.
    ///
    /// # Errors
    /// When the socket fails, or a message without [`FLAG_ACK`] is refused: the others have no answer then.
    pub(crate) fn exchange(&mut self, messages: &[Message]) -> io::Result<Vec<Answer>> {
        let first = self.sequence;
        let mut request = Vec::new();
        for message in messages {
            encode(message, self.sequence, &mut request)?;
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.socket.send(&request, 0)?;

        let mut answers: Vec<Answer> = messages.iter().map(|_| Ok(Vec::new())).collect();
        let mut is_pending: Vec<bool> = messages.iter().map(|m| m.flags & FLAG_ACK != 0).collect();
        let mut buffer = Vec::with_capacity(BUFFER_SIZE);
        while is_pending.contains(&true) {
            buffer.clear();
            match self.socket.recv(&mut buffer, 0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            for received in decode(&buffer) {
                let index = received.sequence.wrapping_sub(first) as usize;
                let (Some(answer), Some(pending)) = (answers.get_mut(index), is_pending.get_mut(index)) else {
                    continue;
                };
                match received.error() {
                    None => *answer = Ok(received.body.to_vec()),
                    Some(0) => *pending = false,
                    Some(code) => {
                        let error = io::Error::from_raw_os_error(code.saturating_neg());
                        if !*pending {
                            return Err(error);
                        }
                        (*answer, *pending) = (Err(error), false);
                    }
                }
            }
        }
        Ok(answers)
    }
}

fn encode(message: &Message, sequence: u32, request: &mut Vec<u8>) -> io::Result<()> {
    let length = u32::try_from(HEADER_LENGTH + message.body.len()).map_err(io::Error::other)?;
    request.extend(length.to_ne_bytes());
    request.extend(message.kind.to_ne_bytes());
    request.extend((message.flags | FLAG_REQUEST).to_ne_bytes());
    request.extend(sequence.to_ne_bytes());
    // Port ID: the kernel knows the sender.
    request.extend([0; 4]);
    request.extend(&message.body);
    request.resize(request.len().next_multiple_of(4), 0);
    Ok(())
}

struct Received<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

impl Received<'_> {
    /// Returns the code of an error message.
    fn error(&self) -> Option<i32> {
        let code = self.body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        (self.kind == ERROR).then(|| code.unwrap_or(-nix::libc::EBADMSG))
    }
}

/// Splits a datagram into its messages.
fn decode(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let header: &[u8; HEADER_LENGTH] = bytes.first_chunk()?;
        let [l0, l1, l2, l3, k0, k1, _, _, s0, s1, s2, s3, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let body = bytes.get(HEADER_LENGTH..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Received { kind: u16::from_ne_bytes([k0, k1]), sequence: u32::from_ne_bytes([s0, s1, s2, s3]), body })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_with_padding_and_decoded() {
        let message = |kind, body: &[u8]| Message { kind, flags: FLAG_ACK, body: body.to_vec() };
        let mut bytes = Vec::new();
        encode(&message(20, b"odd"), 7, &mut bytes).unwrap();
        encode(&message(ERROR, &(-17_i32).to_ne_bytes()), 8, &mut bytes).unwrap();
        let found: Vec<_> = decode(&bytes).map(|m| (m.kind, m.sequence, m.body.to_vec(), m.error())).collect();
        assert_eq!(found[0], (20, 7, b"odd".to_vec(), None));
        assert_eq!((found[1].1, found[1].3), (8, Some(-17)));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn damaged_datagram_ends_the_messages() {
        let mut bytes = Vec::new();
        encode(&Message { kind: 20, flags: 0, body: vec![1; 8] }, 1, &mut bytes).unwrap();
        for length in [0_u32, 15, 25, u32::MAX] {
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(decode(&bytes).count(), 0, "{length}");
        }
        assert_eq!(decode(&bytes[..10]).count(), 0);
    }
}
