//! Wire format of frames (SPDY/3.1 draft, section 2.2 and 2.6).

use bytes::{BufMut, Bytes, BytesMut};

/// Version in every control frame.
const VERSION: u16 = 3;
/// `FLAG_FIN`: the last frame of this direction.
pub(crate) const FIN: u8 = 1;
/// Maximum length of a received control frame.
const MAX_CONTROL_FRAME: usize = 64 << 10;

/// Types of the supported control frames.
pub(crate) mod control {
    pub(crate) const SYN_STREAM: u16 = 1;
    pub(crate) const SYN_REPLY: u16 = 2;
    pub(crate) const RST_STREAM: u16 = 3;
    pub(crate) const PING: u16 = 6;
}

/// Status codes of `RST_STREAM`.
pub(crate) mod reset {
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
    pub(crate) const REFUSED_STREAM: u32 = 3;
    pub(crate) const CANCEL: u32 = 5;
}

/// Frame header (8 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameHeader {
    Data { stream: u32, flags: u8, length: usize },
    Control { kind: u16, flags: u8, length: usize },
}

impl FrameHeader {
    /// Parses a frame header. Returns `None` for another version or an oversized control frame.
    pub(crate) fn parse(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, flags, e, f, g] = bytes;
        let length = usize::try_from(u32::from_be_bytes([0, e, f, g])).ok()?;
        if a & 0x80 == 0 {
            return Some(Self::Data { stream: u32::from_be_bytes([a, b, c, d]), flags, length });
        }
        let version = u16::from_be_bytes([a & 0x7f, b]);
        let kind = u16::from_be_bytes([c, d]);
        (version == VERSION && length <= MAX_CONTROL_FRAME).then_some(Self::Control { kind, flags, length })
    }
}

/// Outgoing frame. The writer compresses header blocks, because compression depends on the order of the frames.
#[derive(Debug)]
pub(crate) enum OutgoingFrame {
    Open { stream: u32, headers: Vec<(String, String)> },
    Reply { stream: u32 },
    Data { stream: u32, bytes: Bytes },
    Fin { stream: u32 },
    Reset { stream: u32, code: u32 },
    Ping { id: u32 },
}

impl OutgoingFrame {
    pub(crate) fn encode(self, encoder: &mut crate::headers::Encoder) -> BytesMut {
        let mut out = BytesMut::new();
        match self {
            Self::Open { stream, headers } => {
                let block = encoder.encode(&headers);
                head(&mut out, control::SYN_STREAM, 0, 10 + block.len());
                out.put_u32(stream);
                out.put_u32(0);
                out.put_u16(0);
                out.put_slice(&block);
            }
            Self::Reply { stream } => {
                let block = encoder.encode(&[]);
                head(&mut out, control::SYN_REPLY, 0, 4 + block.len());
                out.put_u32(stream);
                out.put_slice(&block);
            }
            Self::Data { stream, bytes } => {
                out.reserve(8 + bytes.len());
                out.put_u32(stream);
                out.put_u32(length(bytes.len()));
                out.put_slice(&bytes);
            }
            Self::Fin { stream } => {
                out.put_u32(stream);
                out.put_u32(u32::from(FIN) << 24);
            }
            Self::Reset { stream, code } => {
                head(&mut out, control::RST_STREAM, 0, 8);
                out.put_u32(stream);
                out.put_u32(code);
            }
            Self::Ping { id } => {
                head(&mut out, control::PING, 0, 4);
                out.put_u32(id);
            }
        }
        out
    }
}

fn head(out: &mut BytesMut, kind: u16, flags: u8, len: usize) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u32(u32::from(flags) << 24 | length(len));
}

/// Encodes a 24-bit length. Frames are much smaller than 16 MiB; clamping protects the flags from an overflow.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX).min(0x00ff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: [u8; 8], expected: Option<FrameHeader>) {
        assert_eq!(FrameHeader::parse(bytes), expected);
    }

    #[test]
    fn frame_headers_follow_the_draft() {
        check([0, 0, 0, 5, 1, 0, 1, 2], Some(FrameHeader::Data { stream: 5, flags: FIN, length: 258 }));
        check([0x80, 3, 0, 6, 0, 0, 0, 4], Some(FrameHeader::Control { kind: control::PING, flags: 0, length: 4 }));
        check([0x80, 2, 0, 6, 0, 0, 0, 4], None);
        check([0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff], None);
    }
}
